"""What the trainer says of what vLLM sampled."""

import shutil
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import safetensors.torch
import torch

from services.rollout.engine import GenerateRequest, SamplingParams
from services.trainer.model import Policy
from services.trainer.packed.forest import ROOT, make_forest
from tests.unit.vllm.recorder import Recorder

PROMPT = [1, 50, 60, 70, 80, 90, 2, 300, 301, 302]
WAIT_S = 1500.0
"""A busy machine takes minutes to start vLLM."""


def wait_until(is_so, timeout_s: float = WAIT_S) -> None:
    deadline_s = time.monotonic() + timeout_s
    while not is_so():
        assert time.monotonic() < deadline_s
        time.sleep(0.05)


def change(source: Path, target: Path, seed: int) -> None:
    """The same model with a tenth of each weight's spread added to it."""
    shutil.copytree(source, target)
    path = target / "model.safetensors"
    generator = torch.Generator().manual_seed(seed)
    weights = safetensors.torch.load_file(path)
    for name in sorted(weights):
        tensor = weights[name]
        spread = tensor.std() if tensor.std() > 0 else torch.tensor(1.0)  # norms begin as ones
        weights[name] = tensor + 0.1 * spread * torch.randn(tensor.shape, generator=generator)
    safetensors.torch.save_file(weights, path, metadata={"format": "pt"})


def logprobs(policy: Policy, prompt: list[int], output: list[int], temperature: float = 1.0) -> np.ndarray:
    """[outputs] log-probability of each output token in its own context, by the trainer's forward."""
    tokens = np.array([*prompt, *output])
    targets = np.arange(len(prompt), len(tokens))
    forest = make_forest(
        tokens, np.array([len(tokens)]), np.array([ROOT]), targets, np.full(len(targets), temperature, np.float32)
    )
    with torch.inference_mode():
        return policy.target_logprobs(forest).numpy()


def start(
    engine, call_id: str, prompt=PROMPT, tokens: int = 100, chunk_tokens: int = 1, resume=(), **params
) -> Recorder:
    recorder = Recorder()
    sampling = SamplingParams(max_tokens=tokens, seed=11, **params)
    engine.submit(GenerateRequest(call_id, "s", list(prompt), sampling, list(resume), chunk_tokens), recorder)
    return recorder


def load_in_traffic(
    engine, weights: Path, version: int, begin: Callable[[], Recorder], at_once: int = 4
) -> list[Recorder]:
    """Loads `weights` while `at_once` calls run, however fast calls are over and however long the weights take to be checked; those
    that were begun, all over."""
    before = engine.stats().generated_tokens
    calls = [begin() for _ in range(at_once)]
    wait_until(lambda: engine.stats().generated_tokens > before + 10 * at_once)
    with ThreadPoolExecutor(1) as other:
        loading = other.submit(engine.load, weights, version)
        while not loading.done():
            running = sum(not call.done.is_set() for call in calls)
            calls += [begin() for _ in range(at_once - running)]
            time.sleep(0.02)
        loading.result()
    return [call.wait(WAIT_S) for call in calls]

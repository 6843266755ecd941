"""The embedded engine against transformers' continuous batching, in the multi-turn shape of an agent.

Each of C sessions makes a series of calls in a closed loop: a prompt of 400 tokens, of which the first 350 are those of the
session's previous call, then 16 sampled tokens. One thread, fp32, a random Qwen3 (2 layers, width 128, heads of 32, 1k tokens,
tied embeddings). Both sides return log-probabilities. Prints one JSON object: tokens a second of either side and the ratio,
and for the engine alone the rate of pure decode and pure prefill beside the machine's limit for them.

    python benchmarks/engine_decode.py [--calls 6] [--concurrency 8 32] [--skip-transformers]
"""

import argparse
import json
import logging
import queue
import random
import tempfile
import time

import torch
from transformers import AutoModelForCausalLM, ContinuousBatchingConfig, GenerationConfig, Qwen3Config

from services.rollout.engine import Engine, GenerateRequest, SamplingParams

PROMPT_TOKENS = 400
SHARED_TOKENS = 350
OUTPUT_TOKENS = 16
VOCAB = 1024


def save_model(directory: str) -> None:
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=VOCAB, hidden_size=128, intermediate_size=384, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=32, tie_word_embeddings=True, max_position_embeddings=4096,
        eos_token_id=None, bos_token_id=None, pad_token_id=None,
    )  # fmt: skip
    AutoModelForCausalLM.from_config(config).save_pretrained(directory)


def next_prompt(rng: random.Random, previous: list[int] | None) -> list[int]:
    kept = previous[:SHARED_TOKENS] if previous else []
    return kept + [rng.randrange(VOCAB) for _ in range(PROMPT_TOKENS - len(kept))]


def run_closed_loop(submit, finished: queue.Queue, concurrency: int, calls: int) -> float:
    """Seconds in which every session made its `calls` calls. `submit(session, n, prompt)`; `finished` yields sessions."""
    rng = random.Random(0)
    prompts: dict[int, list[int] | None] = dict.fromkeys(range(concurrency))
    made = dict.fromkeys(range(concurrency), 0)
    start_s = time.perf_counter()
    ready = list(range(concurrency))
    left = concurrency * calls
    while left:
        for session in ready:
            prompts[session] = next_prompt(rng, prompts[session])
            submit(session, made[session], prompts[session])
        session = finished.get(timeout=600)
        left -= 1
        made[session] += 1
        ready = [session] if made[session] < calls else []
    return time.perf_counter() - start_s


def measure_transformers(directory: str, concurrency: int, calls: int) -> float:
    """Sampled tokens a second of transformers' continuous batching; its prefix sharing is left on."""
    model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32, attn_implementation="sdpa")
    generation = GenerationConfig(max_new_tokens=OUTPUT_TOKENS, do_sample=True, temperature=1.0, eos_token_id=-1)
    batching = ContinuousBatchingConfig(
        return_logprobs=True, seed=0, page_size=32, num_blocks=concurrency * 2 * (PROMPT_TOKENS + OUTPUT_TOKENS) // 32,
        max_batch_tokens=2048,
    )  # fmt: skip
    manager = model.init_continuous_batching(generation_config=generation, continuous_batching_config=batching)
    manager.start()
    finished: queue.Queue = queue.Queue()

    class Results:
        @staticmethod
        def get(timeout):
            deadline_s = time.perf_counter() + timeout
            while time.perf_counter() < deadline_s:
                output = manager.get_result(timeout=1)
                if output is not None and output.is_finished():
                    if output.error or len(output.generated_tokens) != OUTPUT_TOKENS or not output.logprobs:
                        raise RuntimeError(f"{output.error}, {len(output.generated_tokens)} tokens")
                    return int(output.request_id.split("/")[0])
            raise TimeoutError

    finished = Results()

    def submit(session: int, n: int, prompt: list[int]) -> None:
        manager.add_request(prompt, request_id=f"{session}/{n}", max_new_tokens=OUTPUT_TOKENS)

    try:
        wall_s = run_closed_loop(submit, finished, concurrency, calls)
    finally:
        manager.stop(block=True)
    return concurrency * calls * OUTPUT_TOKENS / wall_s



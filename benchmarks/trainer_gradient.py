"""Tokens per second of one trainer cell, forward and backward: `python benchmarks/trainer_gradient.py [--threads 1]`.

Qwen3, 2 layers, 128 wide, vocabulary 1024, random; micro-steps of about 4096 tokens in rows of 500–700 tokens, a third of them targets.
"""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from transformers import AutoModelForCausalLM, Qwen3Config

from gyre.config import TrainerConfig
from gyre.records import MicroStep, Row, pack
from services.trainer.gradient import accumulate
from services.trainer.model import Policy
from services.trainer.optimizer import Optimizer, flat_gradient

VOCABULARY = 1024
TOKENS = 4096


def make_model(folder: Path) -> None:
    config = Qwen3Config(
        vocab_size=VOCABULARY, hidden_size=128, intermediate_size=384, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=32, max_position_embeddings=1024, tie_word_embeddings=True,
    )  # fmt: skip
    torch.manual_seed(0)
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    (folder / "tokenizer.json").write_text("{}")


def make_row(rng: np.random.Generator, index: int) -> Row:
    length = int(rng.integers(500, 700))
    targets = (np.arange(length) > 0) & (rng.random(length) < 1 / 3)
    return Row(
        sample_id=f"x{index}", part=0, tokens=pack(rng.integers(0, VOCABULARY, length), "int32"),
        run_lengths=pack([length], "int32"), run_parents=pack([-1], "int32"),
        sequences=pack(np.where(targets, np.arange(length) // 64, -1), "int32"), logprobs=pack(np.full(targets.sum(), -6.9), "float32"),
        versions=pack(np.zeros(targets.sum()), "int32"), advantages=pack(np.ones(targets.sum()), "float32"),
        temperatures=pack(np.ones(targets.sum()), "float32"),
    )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--micro-steps", type=int, default=6)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    rng, config = np.random.default_rng(0), TrainerConfig()
    with tempfile.TemporaryDirectory() as folder:
        make_model(Path(folder))
        policy = Policy(Path(folder))
    optimizer = Optimizer(policy.parameters, config)
    micros = []
    for index in range(options.micro_steps + 1):
        rows = [make_row(rng, 10 * index + number) for number in range(TOKENS // 600)]
        tokens = sum(row.length for row in rows)
        micros.append(MicroStep(micro_id=f"m{index}", step=0, group_id="g", rows=rows, tokens=tokens, at_s=0.0))
    accumulate(policy, micros[0], config)
    start_s, start_cpu_s = time.perf_counter(), time.process_time()
    for micro in micros[1:]:
        accumulate(policy, micro, config)
    wall_s, cpu_s = time.perf_counter() - start_s, time.process_time() - start_cpu_s
    tokens = sum(micro.tokens for micro in micros[1:])
    start_s = time.perf_counter()
    optimizer.step(flat_gradient(policy.parameters), 1, 0)
    update_s = time.perf_counter() - start_s
    print(
        f"{tokens / wall_s:.0f} tokens/s forward and backward ({tokens} tokens, {wall_s:.2f} s, {options.threads} threads)"
    )
    print(f"{tokens / cpu_s:.0f} tokens per CPU second, which a busy machine changes less")
    print(f"update {update_s * 1e3:.1f} ms of {sum(p.numel() for p in policy.parameters)} parameters")


if __name__ == "__main__":
    main()

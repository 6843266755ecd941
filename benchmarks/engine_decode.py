"""The embedded engine against transformers' continuous batching, in the multi-turn shape of an agent.

Each of C sessions makes a series of calls in a closed loop: a prompt of 400 tokens, of which the first 350 are those of the
session's previous call, then 16 sampled tokens. One thread, fp32, a random Qwen3 (2 layers, width 128, heads of 32, 1k tokens,
tied embeddings). Both sides return log-probabilities. Prints one JSON object: tokens a second of either side and the ratio,
and for the engine alone the rate of pure decode and pure prefill beside the machine's limit for them.

    python -m benchmarks.engine_decode [--calls 6] [--concurrency 8 32] [--skip-transformers]
"""

import argparse
import json
import queue
import random
import tempfile
import time

import torch
from transformers import AutoModelForCausalLM, ContinuousBatchingConfig, GenerationConfig, Qwen3Config
from transformers.utils.logging import disable_progress_bar

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


def run_closed_loop(submit, finished, concurrency: int, calls: int) -> float:
    """Seconds in which every session made its `calls` calls. `submit(session, n, prompt)`; `finished.get` gives sessions."""
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


class _Results:
    """transformers' results as a queue of sessions; a failed or incomplete call raises."""

    def __init__(self, manager):
        self._manager = manager

    def get(self, timeout: float) -> int:
        deadline_s = time.perf_counter() + timeout
        while time.perf_counter() < deadline_s:
            output = self._manager.get_result(timeout=1)
            if output is not None and output.is_finished():
                if output.error or len(output.logprobs) != OUTPUT_TOKENS:
                    raise RuntimeError(f"{output.error}, {len(output.logprobs)} log-probabilities")
                return int(output.request_id.split("/")[0])
        raise TimeoutError


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

    def submit(session: int, n: int, prompt: list[int]) -> None:
        manager.add_request(prompt, request_id=f"{session}/{n}", max_new_tokens=OUTPUT_TOKENS)

    try:
        wall_s = run_closed_loop(submit, _Results(manager), concurrency, calls)
    finally:
        manager.stop(block=True)
    return concurrency * calls * OUTPUT_TOKENS / wall_s


def measure_engine(directory: str, concurrency: int, calls: int) -> float:
    """Sampled tokens a second of the embedded engine, delivered token by token."""
    engine = Engine(directory, slots=concurrency, context_max=1024)
    finished: queue.Queue = queue.Queue()

    def submit(session: int, n: int, prompt: list[int]) -> None:
        got: list[int] = []

        def on_tokens(chunk) -> None:
            got.extend(chunk.token_ids)
            if chunk.finish_reason:
                finished.put(session if len(got) == OUTPUT_TOKENS else RuntimeError(chunk))

        params = SamplingParams(max_tokens=OUTPUT_TOKENS, seed=n)
        engine.submit(GenerateRequest(f"{session}/{n}", str(session), prompt, params), on_tokens)

    try:
        wall_s = run_closed_loop(submit, finished, concurrency, calls)
    finally:
        engine.close()
    return concurrency * calls * OUTPUT_TOKENS / wall_s


def measure_phase(directory: str, rows: int, prompt_tokens: int, output_tokens: int) -> tuple[float, float]:
    """(prefill, decode) tokens a second with `rows` equal calls of unshared prompts: either phase from the engine's own
    counters between the first submission, the first token of the last row, and the end."""
    engine = Engine(directory, slots=rows, context_max=prompt_tokens + output_tokens)
    rng = random.Random(1)
    first: dict[int, float] = {}
    ended: queue.Queue = queue.Queue()
    sampled_before = 0

    def listener(row: int):
        def on_tokens(chunk) -> None:
            nonlocal sampled_before
            if row not in first:
                first[row] = time.perf_counter()
                sampled_before = engine.stats().generated_tokens
            if chunk.finish_reason:
                ended.put(row)

        return on_tokens

    prompts = [[rng.randrange(VOCAB) for _ in range(prompt_tokens)] for _ in range(rows)]
    start_s = time.perf_counter()
    for row, prompt in enumerate(prompts):
        params = SamplingParams(max_tokens=output_tokens, seed=row)
        engine.submit(GenerateRequest(str(row), str(row), prompt, params), listener(row))
    for _ in range(rows):
        ended.get(timeout=600)
    end_s = time.perf_counter()
    decoded = engine.stats().generated_tokens - sampled_before
    engine.close()
    prefill = rows * prompt_tokens / (max(first.values()) - start_s)
    return prefill, decoded / (end_s - max(first.values())) if output_tokens > 1 else 0.0


def measure_limits(directory: str, rows: int, keys: int) -> dict[str, float]:
    """What the machine could do at best: matrix products at the speed of one large product, keys and values read once at
    the speed of a large copy's reads, everything else free. Tokens a second."""
    model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32)
    config = model.config
    linear = sum(m.weight.numel() for m in model.modules() if isinstance(m, torch.nn.Linear))
    a = torch.randn(512, 512)
    flops = 2 * 512**3 * _rate(lambda: a @ a)
    big = torch.randn(1 << 23)
    bytes_s = big.numel() * 4 * _rate(big.sum)
    kv_bytes = 2 * config.num_hidden_layers * config.num_key_value_heads * config.head_dim * 4 * keys
    attention_flops = 4 * config.num_hidden_layers * config.num_attention_heads * config.head_dim
    head = config.vocab_size * config.hidden_size
    decode_s = rows * (2 * linear + attention_flops * keys) / flops + (4 * linear + rows * kv_bytes) / bytes_s
    prefill_s = (2 * (linear - head) + attention_flops * PROMPT_TOKENS / 2) / flops
    return {"gflops": flops / 1e9, "read_gb_s": bytes_s / 1e9, "decode": rows / decode_s, "prefill": 1 / prefill_s}


def _rate(work) -> float:
    """Runs a second, best of five tries of 10."""
    best_s = float("inf")
    for _ in range(5):
        start_s = time.perf_counter()
        for _ in range(10):
            work()
        best_s = min(best_s, (time.perf_counter() - start_s) / 10)
    return 1 / best_s


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--calls", type=int, default=6, help="calls of each session")
    parser.add_argument("--concurrency", type=int, nargs="+", default=[8, 32])
    parser.add_argument("--skip-transformers", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(1)
    disable_progress_bar()
    report: dict[str, dict] = {}
    with tempfile.TemporaryDirectory() as directory, torch.inference_mode():
        save_model(directory)
        for concurrency in args.concurrency:
            ours = measure_engine(directory, concurrency, args.calls)
            prefill, decode = measure_phase(directory, concurrency, PROMPT_TOKENS, 64)
            limits = measure_limits(directory, concurrency, PROMPT_TOKENS + 32)
            figures = {
                "multi_turn_engine_tokens_s": ours,
                "decode_tokens_s": decode,
                "decode_share_of_limit": decode / limits["decode"],
                "prefill_tokens_s": prefill,
                "prefill_share_of_limit": prefill / limits["prefill"],
                "limits": limits,
            }
            if not args.skip_transformers:
                theirs = measure_transformers(directory, concurrency, args.calls)
                figures |= {"multi_turn_transformers_tokens_s": theirs, "multi_turn_ratio": ours / theirs}
            report[f"concurrency {concurrency}"] = figures
    print(json.dumps(report, indent=2, default=float))


if __name__ == "__main__":
    main()

"""vLLM cells against the embedded engine on one CPU: the same model, calls and interface, one thread each.

Two shapes at each concurrency: an agent's (benchmarks/engine_decode.py: prompts of 400 tokens, 350 of them known from the session's call
before, 16 tokens sampled) and plain decoding (short prompts, 200 tokens sampled). Prints one JSON object: sampled tokens a second, seconds of
vLLM's start, and seconds of a weight update with calls in flight.

    python -m benchmarks.vllm_engine [--python build/vllm/bin/python] [--concurrency 1 8 32] [--calls 4] [--stream-tokens 8]
"""

import argparse
import json
import queue
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.engine_decode import OUTPUT_TOKENS, run_closed_loop, save_model
from gyre.config.sections import VllmConfig
from services.rollout.engine import Engine, GenerateRequest, SamplingParams
from services.rollout.engine.vllm.engine import VllmEngine
from services.rollout.engine.vllm.process import VllmProcess

CONTEXT_MAX = 512
DECODE_TOKENS = 200
WHOLE_OUTPUT = 1 << 30


def submitter(engine: Any, finished: queue.Queue, tokens: int) -> Callable[[int, int, list[int]], None]:
    def submit(session: int, number: int, prompt: list[int]) -> None:
        def on_tokens(chunk: Any) -> None:
            if chunk.finish_reason is not None:
                if chunk.finish_reason != "length":
                    raise RuntimeError(f"{chunk.finish_reason}: {chunk.detail}")
                finished.put(session)

        params = SamplingParams(max_tokens=tokens, seed=1000 * session + number)
        name = f"{session}/{number}/{time.perf_counter_ns()}"
        engine.submit(GenerateRequest(name, str(session), prompt, params, chunk_tokens=WHOLE_OUTPUT), on_tokens)

    return submit


def agents(engine: Any, concurrency: int, calls: int) -> float:
    finished: queue.Queue = queue.Queue()
    took_s = run_closed_loop(submitter(engine, finished, OUTPUT_TOKENS), finished, concurrency, calls)
    return concurrency * calls * OUTPUT_TOKENS / took_s


def decoding(engine: Any, concurrency: int) -> float:
    finished: queue.Queue = queue.Queue()
    submit = submitter(engine, finished, DECODE_TOKENS)
    start_s = time.perf_counter()
    for session in range(concurrency):
        submit(session, 0, [1 + session, 2, 3, 4])
    for _ in range(concurrency):
        finished.get(timeout=600)
    return concurrency * DECODE_TOKENS / (time.perf_counter() - start_s)


def measure(engines: dict[str, Any], concurrencies: list[int], calls: int) -> dict[str, dict[str, float]]:
    """The engines in turn at each point, so that a busy machine is busy for all of them."""
    found: dict[str, dict[str, float]] = {name: {} for name in engines}
    for engine in engines.values():
        agents(engine, 2, 2)  # warm
    for concurrency in concurrencies:
        for name, engine in engines.items():
            found[name][f"agent_tokens_per_s_{concurrency}"] = round(agents(engine, concurrency, calls), 1)
            found[name][f"decode_tokens_per_s_{concurrency}"] = round(decoding(engine, concurrency), 1)
    return found


def update_s(engine: VllmEngine, directory: Path, version: int) -> float:
    """With eight calls in flight."""
    finished: queue.Queue = queue.Queue()
    submit = submitter(engine, finished, DECODE_TOKENS)
    for session in range(8):
        submit(session, version, [1, 2, 3])
    start_s = time.perf_counter()
    engine.load(directory, version)
    took_s = time.perf_counter() - start_s
    for _ in range(8):
        finished.get(timeout=600)
    return took_s


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--python", default=VllmConfig().python)
    parser.add_argument("--concurrency", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--calls", type=int, default=4)
    parser.add_argument("--stream-tokens", type=int, default=8)
    options = parser.parse_args()
    slots = max(options.concurrency)
    with tempfile.TemporaryDirectory() as directory:
        model = Path(directory) / "model"
        save_model(str(model))
        config = VllmConfig(python=options.python, stream_tokens=options.stream_tokens)
        process = VllmProcess(model, slots, CONTEXT_MAX, config, "cpu", 1, Path(directory) / "vllm.log")
        start_s = time.perf_counter()
        vllm = VllmEngine(model, slots, CONTEXT_MAX, config, process)
        vllm.load(model, 0)
        start_s = round(time.perf_counter() - start_s, 1)
        embedded = Engine(str(model), slots, CONTEXT_MAX)
        result: dict[str, Any] = measure({"embedded": embedded, "vllm": vllm}, options.concurrency, options.calls)
        result["vllm"] |= {"start_s": start_s, "update_s": [round(update_s(vllm, model, v), 3) for v in (1, 2, 3)]}
        embedded.close()
        vllm.close()
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()

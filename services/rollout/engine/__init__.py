"""The embedded generation engine: continuous batching over slots, for rollout cells without vLLM.

    submit ─▶ inbox ─▶ waiting (first come, first served) ─▶ slot ─▶ one forward a step ─▶ sample ─▶ on_tokens
                                                              ▲   all rows: one token each, and prompt
                                                              │   chunks up to PREFILL_TOKENS_STEP
                          tokens and keys of ended calls stay ┘   for the session's next call

| file | owns |
|---|---|
| requests.py | what callers see: requests, chunks, errors (no torch) |
| slots.py | which tokens each slot holds, who may reuse them, who goes next (no torch) |
| attention.py | keys and values, and attention of a flat row of tokens against them |
| sampling.py | draws that depend on (seed, position) only |
| weights.py | reading and checking new weights before any live one is touched |
| runner.py | the model and its slots; one step = one forward |
| engine.py | calls and the thread that turns: commands, admission, step, delivery |
| emulated.py | the same interface for dry runs: it only waits |
| vllm/ | the same interface over a vLLM server beside the cell |

Importing this package does not import torch; the first use of `Engine` does.
"""

from typing import TYPE_CHECKING

from services.rollout.engine.requests import (
    CallExists,
    Chunk,
    ContextTooLong,
    EmptyPrompt,
    EngineUnavailable,
    FinishReason,
    GenerateRequest,
    SamplingParams,
    UnknownToken,
    WeightsRefused,
)

if TYPE_CHECKING:
    from services.rollout.engine.engine import Engine

__all__ = [
    "CallExists",
    "Chunk",
    "ContextTooLong",
    "EmptyPrompt",
    "Engine",
    "EngineUnavailable",
    "FinishReason",
    "GenerateRequest",
    "SamplingParams",
    "UnknownToken",
    "WeightsRefused",
]


def __getattr__(name: str):
    if name == "Engine":
        from services.rollout.engine.engine import Engine

        return Engine
    raise AttributeError(name)

"""What goes over the wire to vLLM's `/inference/v1/generate` and comes back. Pure."""

import hashlib
import json
from dataclasses import dataclass
from typing import Any

from services.rollout.engine.requests import GenerateRequest

DONE = "[DONE]"
EXTERNAL = "generate-tokens-"
"""What vLLM puts before the id of a request; aborts ask for the whole."""


@dataclass(frozen=True, slots=True)
class Span:
    """Output tokens [start, stop) of this stream were sampled by `version`."""

    version: int
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Delta:
    """One message of a stream."""

    ids: list[int]
    logprobs: list[float]
    finish: str = ""
    """vLLM's word, in the last message with a choice: stop, length, abort, error."""
    spans: list[Span] | None = None
    """With `finish` only, over all tokens of the stream."""
    prompt_tokens: int = 0
    """After the finish: prompt tokens, and how many of them were found in the cache."""
    cached_tokens: int = 0
    error: str = ""


def body(name: str, request: GenerateRequest, context_max: int) -> dict[str, Any]:
    """The request. The stop token is part of the output, as the policy sampled it; no other token ends the call."""
    params, resumed = request.params, request.resume_output_ids
    prefix = [*request.prompt_ids, *resumed]
    return {
        "request_id": name, "token_ids": prefix, "stream": True, "stream_options": {"include_usage": True},
        "sampling_params": {
            "temperature": params.temperature, "top_p": params.top_p, "top_k": 0, "logprobs": 0, "detokenize": False,
            "max_tokens": min(params.max_tokens - len(resumed), context_max - len(prefix)),
            "seed": seed(request.seed(), len(resumed)), "stop_token_ids": list(params.stop_token_ids), "ignore_eos": True,
        },
    }  # fmt: skip


def seed(of_call: int, resumed: int) -> int:
    """63 bits for vLLM's generator. It starts anew in a call that goes on elsewhere, which must not repeat its first draws: so the
    position goes into the seed."""
    digest = hashlib.sha256(f"{of_call}/{resumed}".encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 1


def parse(data: str) -> Delta:
    """One `data:` line's JSON. What is no such message raises ValueError, KeyError or TypeError."""
    message = json.loads(data)
    if error := message.get("error"):
        return Delta([], [], error=str(error.get("message", error) if isinstance(error, dict) else error))
    if not message["choices"]:
        usage = message.get("usage") or {}
        details = usage.get("prompt_tokens_details") or {}
        return Delta(
            [], [], prompt_tokens=usage.get("prompt_tokens", 0), cached_tokens=details.get("cached_tokens") or 0
        )
    choice = message["choices"][0]
    ids = choice["token_ids"] or []
    logprobs = [entry["logprob"] for entry in (choice["logprobs"] or {}).get("content") or []]
    if len(logprobs) != len(ids):
        raise ValueError(f"{len(ids)} tokens with {len(logprobs)} log-probabilities")
    return Delta(ids, logprobs, choice["finish_reason"] or "", _spans(choice["weight_versions"]))


def _spans(found: list[dict] | None) -> list[Span] | None:
    return None if found is None else [Span(int(span["version"]), span["start"], span["end"]) for span in found]

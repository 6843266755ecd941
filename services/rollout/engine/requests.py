"""What a caller of the engine sees: requests, chunks of tokens, errors."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum

from gyre.errors import Conflict, InvalidInput, Unavailable

SEED_MASK = 2**64 - 1
"""Seeds are taken modulo 2^64."""


class FinishReason(StrEnum):
    STOP = "stop"
    """A stop token was sampled; it is the last of the output, since the policy sampled it."""
    LENGTH = "length"
    """`max_tokens` or the engine's `context_max` was reached."""
    ABORTED = "aborted"
    MIGRATED = "migrated"
    """Drained: send the call elsewhere with the tokens it has as `resume_output_ids`."""
    ERROR = "error"


class ContextTooLong(InvalidInput):
    """The prompt and resumed tokens leave no room for one more token."""

    code = "context_too_long"

    def __init__(self, prefix_tokens: int, context_max: int):
        super().__init__(f"{prefix_tokens} tokens of prompt, but at most {context_max - 1} fit (context {context_max})")
        self.prefix_tokens = prefix_tokens
        self.context_max = context_max


class EmptyPrompt(InvalidInput):
    code = "empty_prompt"


class UnknownToken(InvalidInput):
    """A token id outside the model's vocabulary."""

    code = "unknown_token"


class CallExists(Conflict):
    """A call of this id is running or waiting."""

    code = "call_exists"


class EngineUnavailable(Unavailable):
    """The engine is closed, or its weights are unloaded."""

    code = "engine_unavailable"


class WeightsRefused(InvalidInput):
    """New weights failed validation; the live weights were not touched."""

    code = "weights_refused"


@dataclass(frozen=True, slots=True)
class SamplingParams:
    temperature: float = 1.0
    """0 is greedy (argmax)."""
    top_p: float = 1.0
    """Only the smallest set of likeliest tokens whose mass reaches this is sampled from; in (0, 1]."""
    max_tokens: int = 256
    """Of the whole output: tokens resumed from a migrated call count."""
    stop_token_ids: tuple[int, ...] = ()
    seed: int | None = None
    """The draw for output position i depends on (seed, i) only. None: derived from the call id."""

    def __post_init__(self) -> None:
        if self.temperature < 0 or not 0 < self.top_p <= 1 or self.max_tokens < 1:
            raise ValueError(f"temperature >= 0, 0 < top_p <= 1, max_tokens >= 1 are required: {self}")


@dataclass(frozen=True, slots=True)
class GenerateRequest:
    call_id: str
    session_key: str
    """Calls of one session extend each other's context, as a rule; a slot keeps the tokens of its last call for it."""
    prompt_ids: list[int]
    params: SamplingParams = field(default_factory=SamplingParams)
    resume_output_ids: list[int] = field(default_factory=list)
    """What a migrated call had sampled elsewhere: not sent again, but counted by `max_tokens` and by draw positions."""
    chunk_tokens: int = 1
    """Tokens gathered before `on_tokens` is called. Calls that nobody watches save time with a larger number."""

    def seed(self) -> int:
        if self.params.seed is not None:
            return self.params.seed & SEED_MASK
        return int.from_bytes(hashlib.sha256(self.call_id.encode()).digest()[:8], "little")


@dataclass(frozen=True, slots=True)
class Chunk:
    """New tokens of one call. The chunks of a call, joined, are its output less the resumed tokens; the last chunk, and
    only it, has a `finish_reason` (its token list may be empty).

    `logprobs[i]` is the natural log of the probability with which `token_ids[i]` was drawn: softmax of logits ÷
    temperature, renormalised over the top-p set where top_p < 1. With temperature 0 nothing is drawn, and it is the
    log-softmax at temperature 1. `versions[i]` is the policy version whose weights were live in the forward pass that
    produced token i, stored by the thread that also swaps weights and never looked up later.
    """

    call_id: str
    token_ids: list[int]
    logprobs: list[float]
    versions: list[int]
    finish_reason: FinishReason | None = None
    detail: str = ""
    """Why a call was aborted or failed."""
    reused_tokens: int = 0
    """Prompt tokens that were found computed, up to now."""


OnTokens = Callable[[Chunk], None]
"""Called on the engine's thread: be quick, never wait for the engine. A call whose callback raises is aborted."""

"""One call: tokens as vLLM streams them, the version that sampled each, and what the caller is given.

vLLM says only at a stream's end which version sampled which tokens. Until then a token counts as sampled by the version that was live when
it came, which is right because nothing is sampled between pause and resume; what vLLM says at the end corrects what was not yet given,
and a call of which a wrong label was given already is an error, never a record.
"""

from dataclasses import dataclass, field

from services.rollout.engine.requests import Chunk, FinishReason, GenerateRequest, OnTokens
from services.rollout.engine.vllm.wire import Delta, Span


class LabelsDiffer(Exception):
    """Tokens were given out under a version that did not sample them."""


@dataclass(slots=True, eq=False)
class Call:
    request: GenerateRequest
    on_tokens: OnTokens
    name: str
    """What vLLM knows it by."""
    ids: list[int] = field(default_factory=list)
    """Not yet given to the caller, as the next two."""
    logprobs: list[float] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)
    given: list[int] = field(default_factory=list)
    """Versions under which tokens were given."""
    reused_tokens: int = 0
    """Of what was sent, found in vLLM's cache; it says so when the stream ends."""
    ending: FinishReason | None = None
    """Why it was asked to end, and the word for it."""
    detail: str = ""
    is_deaf: bool = False
    """The caller's callback has raised: nobody is told any more."""

    @property
    def sampled(self) -> int:
        """Tokens of this stream."""
        return len(self.given) + len(self.ids)

    def take(self, delta: Delta, live_version: int) -> None:
        self.ids += delta.ids
        self.logprobs += delta.logprobs
        self.versions += [live_version] * len(delta.ids)
        self.reused_tokens = max(self.reused_tokens, delta.cached_tokens)
        if delta.spans is not None:
            self._settle(delta.spans)

    def _settle(self, spans: list[Span]) -> None:
        said = [span.version for span in spans for _ in range(span.start, span.stop)]
        if len(said) != self.sampled:
            raise LabelsDiffer(f"{self.sampled} tokens, versions of {len(said)}")
        if said[: len(self.given)] != self.given:
            raise LabelsDiffer("a token was given out under a version that did not sample it")
        self.versions = said[len(self.given) :]

    @property
    def is_due(self) -> bool:
        return len(self.ids) >= self.request.chunk_tokens

    def deliver(self, finish: FinishReason | None = None, detail: str = "") -> bool:
        """Give the caller what there is; False where its callback raises."""
        reused = min(self.reused_tokens, len(self.request.prompt_ids))
        chunk = Chunk(self.request.call_id, self.ids, self.logprobs, self.versions, finish, detail, reused)
        self.given += self.versions
        self.ids, self.logprobs, self.versions = [], [], []
        if self.is_deaf:
            return False
        try:
            self.on_tokens(chunk)
        except Exception:
            self.is_deaf = True
        return not self.is_deaf

"""Collects one call's chunks."""

import threading

from services.rollout.engine import Chunk, FinishReason


class Recorder:
    """Called with chunks; `done` when the last one came."""

    def __init__(self) -> None:
        self.chunks: list[Chunk] = []
        self.first, self.done = threading.Event(), threading.Event()

    def __call__(self, chunk: Chunk) -> None:
        self.chunks.append(chunk)
        if chunk.token_ids:
            self.first.set()
        if chunk.finish_reason is not None:
            self.done.set()

    def joined(self, name: str) -> list:
        return [item for chunk in self.chunks for item in getattr(chunk, name)]

    @property
    def ids(self) -> list[int]:
        return self.joined("token_ids")

    @property
    def finish(self) -> FinishReason | None:
        return self.chunks[-1].finish_reason

    def wait(self, timeout_s: float = 180.0) -> "Recorder":
        assert self.done.wait(timeout_s), "the call did not finish"
        return self

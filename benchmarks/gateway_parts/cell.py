"""`python -m benchmarks.gateway_parts.cell --run DIR --cell 0`: its engine waits a millisecond for each token it was allowed, and says `REPLY`.

It serves any number of calls at once, or with GYRE_BENCH_SLOTS that many, first come first served.
"""

import asyncio
import os
from collections import deque
from pathlib import Path

from gyre.service import Context, main
from services.rollout.cell.app import model_directory, serve
from services.rollout.core.template import ChatTemplate
from services.rollout.engine.emulated import EmulatedStats
from services.rollout.engine.requests import Chunk, FinishReason, GenerateRequest, OnTokens

REPLY = "ok, on to the next step"


class WaitingEngine:
    """As services.rollout.engine.Engine, on the loop of its process: no thread whose waking would count as the gateway's time."""

    def __init__(self, model_dir: Path, slots: int) -> None:
        template = ChatTemplate.load(model_dir)
        self._reply = [*template.encode(REPLY), template.stop_ids[0]]
        self._loop = asyncio.get_running_loop()
        self._slots = slots
        self._waiting: deque[tuple[GenerateRequest, OnTokens]] = deque()
        self._running: dict[str, tuple[asyncio.TimerHandle, OnTokens]] = {}
        self._version, self._is_loaded, self._tokens = 0, False, 0

    def submit(self, request: GenerateRequest, on_tokens: OnTokens) -> None:
        self._waiting.append((request, on_tokens))
        self._admit()

    def abort(self, call_id: str, reason: str = "") -> None:
        if (running := self._running.pop(call_id, None)) is not None:
            running[0].cancel()
            running[1](Chunk(call_id, [], [], [], FinishReason.ABORTED, reason))
            self._admit()

    def drain(self) -> int:
        return 0

    def unload(self) -> int:
        self._is_loaded = False
        return 0

    def load(self, source, version: int, checksum: str | None = None) -> None:
        self._version, self._is_loaded = version, True

    def stats(self) -> EmulatedStats:
        return EmulatedStats(
            self._slots, len(self._running), len(self._waiting), self._version, self._is_loaded, self._tokens, 0.0
        )

    def close(self) -> None:
        pass

    def _admit(self) -> None:
        while self._waiting and len(self._running) < self._slots:
            request, on_tokens = self._waiting.popleft()
            timer = self._loop.call_later(request.params.max_tokens / 1000, self._end, request.call_id)
            self._running[request.call_id] = timer, on_tokens

    def _end(self, call_id: str) -> None:
        _, on_tokens = self._running.pop(call_id)
        self._tokens += len(self._reply)
        count = len(self._reply)
        on_tokens(Chunk(call_id, self._reply, [-1.0] * count, [self._version] * count, FinishReason.STOP))
        self._admit()


async def run(context: Context) -> None:
    """One cell that only waits."""
    directory = model_directory(context)
    await serve(context, WaitingEngine(directory, int(os.environ.get("GYRE_BENCH_SLOTS", "100000"))), directory)


if __name__ == "__main__":
    main("bench.cell", run, with_cell=True)

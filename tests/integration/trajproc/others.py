"""The other services of a run, spoken for by a test, each under its own identity."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator

from gyre import records as r
from gyre.bus import work
from gyre.bus.access import SPEAKS
from gyre.bus.subjects import natural_key
from tests.support import TestRun

OURS = (
    r.CallSetAside, r.SampleReady, r.SampleDropped, r.BatchExtended, r.BatchOverdue, r.BatchClosed, r.AlarmRaised,
)  # fmt: skip
"""What the processor says."""
SPEAKER = {kind: service for service, kinds in reversed(SPEAKS.items()) for kind in kinds}
"""Who may say a fact; the first named where several may."""


class Others:
    """Scheduler, gateway and trainer, each under its own identity; sees what the processor says."""

    def __init__(self, run: TestRun) -> None:
        self._run = run
        self._buses: dict[str, object] = {}
        self.facts: list = []
        self.micros: list[r.MicroStep] = []

    async def watch(self) -> list[asyncio.Task]:
        operator, self._trainer = await self._run.bus("operator"), await self._run.bus("trainer")

        async def follow() -> None:
            async for fact, _ in operator.follow((*OURS, r.ExecutionCommanded)):
                self.facts.append(fact)

        async def claim() -> None:
            queue = work.micros(self._trainer, ack_wait_s=60)
            while True:
                if (delivery := await queue.next(wait_s=1.0)) is not None:
                    self.micros.append(delivery.record)

        return [asyncio.create_task(follow()), asyncio.create_task(claim())]

    async def say(self, *facts) -> None:
        for fact in facts:
            identity = SPEAKER[type(fact)]
            if identity not in self._buses:
                self._buses[identity] = await self._run.bus(identity)
            await self._buses[identity].publish(fact)

    async def until(self, condition, wait_s: float = 20.0) -> None:
        deadline = time.monotonic() + wait_s
        while not condition():
            assert time.monotonic() < deadline, f"waited too long; said so far: {[natural_key(f) for f in self.facts]}"
            await asyncio.sleep(0.02)

    def of(self, kind: type) -> list:
        return [fact for fact in self.facts if isinstance(fact, kind)]

    def closed(self) -> list[r.BatchClosed]:
        return [fact for fact in self.facts if isinstance(fact, r.BatchClosed)]

    def of_group(self, group: str) -> list[str]:
        return [type(fact).__name__ for fact in self.facts if getattr(fact, "group_id", "") == group]


@contextlib.asynccontextmanager
async def watching(run: TestRun) -> AsyncIterator[Others]:
    """The others, who see what is said until the block ends."""
    others = Others(run)
    tasks = await others.watch()
    try:
        yield others
    finally:
        for task in tasks:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

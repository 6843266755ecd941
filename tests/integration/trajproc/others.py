"""The other services of a run, spoken for by a test, each under its own identity."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from gyre import records as r
from gyre.bus import work
from gyre.bus.access import SPEAKS
from gyre.tasks import end
from tests.support import TestRun

OURS = (
    r.CallSetAside, r.SampleReady, r.SampleDropped, r.BatchExtended, r.BatchOverdue, r.BatchClosed, r.AlarmRaised,
)  # fmt: skip
"""What the processor says."""
SPEAKER = {kind: service for service, kinds in reversed(SPEAKS.items()) for kind in kinds}
"""Who may say a fact; the first named where several may."""


class Others:
    """Scheduler, gateway and trainer, each under its own identity; sees what the processor says, and takes its micro-steps."""

    def __init__(self, run: TestRun) -> None:
        self._run = run
        self._buses: dict[str, Any] = {}
        self.micros: list[r.MicroStep] = []
        self.of = run.of

    @property
    def facts(self) -> list:
        return self._run.facts

    async def claim(self, trainer) -> None:
        queue = work.micros(trainer, ack_wait_s=600)
        while True:
            if (delivery := await queue.next(wait_s=1.0)) is not None:
                self.micros.append(delivery.record)

    async def say(self, *facts) -> None:
        for fact in facts:
            identity = SPEAKER[type(fact)]
            if identity not in self._buses:
                self._buses[identity] = await self._run.bus(identity)
            await self._buses[identity].publish(fact)

    async def until(self, what: Callable[[], Any]) -> Any:
        return await self._run.until(what)

    async def all_micros(self, micro_ids: Sequence[str]) -> None:
        """Wait for these on the queue, which is another stream than the facts that name them."""
        await self.until(lambda: {micro.micro_id for micro in self.micros} >= set(micro_ids))

    def closed(self) -> list[r.BatchClosed]:
        return self.of(r.BatchClosed)


@contextlib.asynccontextmanager
async def watching(run: TestRun, kinds: Sequence[type] = (*OURS, r.ExecutionCommanded)) -> AsyncIterator[Others]:
    """The others, who see what is said until the run ends, and take micro-steps until the block does."""
    others = Others(run)
    run.listen(kinds)
    claiming = asyncio.create_task(others.claim(await run.bus("trainer")))
    try:
        yield others
    finally:
        await end(claiming)

"""Which rollout cells are really there: a cell that should serve and does not answer is reported as lost, and as back when it does (A3).

The waterlevel rule counts the capacity that remains; a dead cell in that count would send living ones to training and leave executions
without a place. A cell that is on its way back to rollout has to answer, too: moves are serial, so one whose process died while it trained would
hold up all others. While it trains nothing depends on it, unless it was reported as lost before it left: the scheduler asks a lost cell for nothing,
so whatever its role it is looked at until it answers. Calls of a cell that does not answer are taken from it: a process that stands still breaks no
stream.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable

import grpc.aio

from gyre.api.rollout.v1 import cells_pb2 as pb
from gyre.bus import Bus
from gyre.clock import Clock
from gyre.records import CellReported
from services.rollout.gateway.pool import CellPool

log = logging.getLogger(__name__)

LOOK_S = 1.0
ANSWER_S = 2.0
MISSES_MAX = 3
"""Looks in a row without an answer before a cell is lost: a process that is started anew at once, or one that is busy loading, is not."""


class CellReports:
    """Looks at every cell that calls are routed to or will be, and at those that are lost; says only what changes."""

    def __init__(
        self, pool: CellPool, bus: Bus, clock: Clock, capacity: int, returning: Callable[[], Iterable[str]]
    ) -> None:
        """`capacity`: executions that a whole cell serves. `returning`: names of the cells on their way back to rollout."""
        self._pool = pool
        self._returning = returning
        self._bus = bus
        self._clock = clock
        self._capacity = capacity
        self._misses: dict[str, int] = {}
        self._lost: set[str] = set()

    async def run(self) -> None:
        """For ever. What an earlier gateway process reported as lost is known from the facts."""
        cells = self._pool.routing.cells
        for name in cells:
            last = await self._bus.newest(CellReported, name)
            if last is not None and last.capacity == 0:
                self._lost.add(name)
        while True:
            await asyncio.sleep(LOOK_S)
            await self._look([name for name, cell in cells.items() if cell.serving], lambda name: cells[name].serving)
            await self._look(self._returning(), lambda name: name in self._returning())
            away = self._lost.difference(self._returning())
            await self._look([name for name in away if not cells[name].serving], lambda name: not cells[name].serving)

    async def _look(self, names: Iterable[str], is_still: Callable[[str], bool]) -> None:
        """At cells of one kind, as far as they are of it still: one may be asked away while we look."""
        names = [name for name in names if name in self._pool.routing.cells]
        for name, serves in zip(names, await asyncio.gather(*map(self._serves, names)), strict=True):
            if is_still(name):
                await self._judge(name, serves)

    async def _serves(self, name: str) -> bool | None:
        """None: it does not answer."""
        try:
            return (await self._pool.stubs[name].GetStatus(pb.GetStatusRequest(), timeout=ANSWER_S)).serving
        except grpc.aio.AioRpcError:
            return None

    async def _judge(self, name: str, serves: bool | None) -> None:
        """One that calls are routed to has to serve, of any other it is enough to answer."""
        is_there = serves if self._pool.routing.cells[name].serving else serves is not None
        self._misses[name] = 0 if is_there else self._misses.get(name, 0) + 1
        if serves is None and self._misses[name] >= MISSES_MAX:
            self._pool.lose(name)
        if is_there and name in self._lost:
            self._lost.discard(name)
            await self._say(name, self._capacity, "serves again" if serves else "answers again")
        elif self._misses[name] >= MISSES_MAX and name not in self._lost:
            self._lost.add(name)
            await self._say(name, 0, f"did not answer {MISSES_MAX} times in a row")

    async def _say(self, name: str, capacity: int, reason: str) -> None:
        log.warning("%s %s: capacity %d", name, reason, capacity)
        await self._bus.publish(CellReported(cell=name, capacity=capacity, at_s=self._clock.now_s(), reason=reason))

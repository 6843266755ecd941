"""Which rollout cells are really there: a cell that should serve and does not answer is reported as lost, and as back when it serves again (A3).

The waterlevel rule counts the capacity that remains; a dead cell in that count would send living ones to training and leave executions
without a place.
"""

import asyncio
import logging

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
    """Looks at every cell that calls are routed to; says only what changes."""

    def __init__(self, pool: CellPool, bus: Bus, clock: Clock, capacity: int) -> None:
        """`capacity`: executions that a whole cell serves."""
        self._pool = pool
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
            looked = [name for name, cell in cells.items() if cell.serving]
            found = await asyncio.gather(*map(self._serves, looked))
            for name, serves in zip(looked, found, strict=True):
                if cells[name].serving:  # still: else it was asked away while we looked
                    await self._judge(name, serves)

    async def _serves(self, name: str) -> bool:
        try:
            return (await self._pool.stubs[name].GetStatus(pb.GetStatusRequest(), timeout=ANSWER_S)).serving
        except grpc.aio.AioRpcError:
            return False

    async def _judge(self, name: str, serves: bool) -> None:
        self._misses[name] = 0 if serves else self._misses.get(name, 0) + 1
        if serves and name in self._lost:
            self._lost.discard(name)
            await self._say(name, self._capacity, "serves again")
        elif self._misses[name] >= MISSES_MAX and name not in self._lost:
            self._lost.add(name)
            await self._say(name, 0, f"did not answer {MISSES_MAX} times in a row")

    async def _say(self, name: str, capacity: int, reason: str) -> None:
        log.warning("%s %s: capacity %d", name, reason, capacity)
        await self._bus.publish(CellReported(cell=name, capacity=capacity, at_s=self._clock.now_s(), reason=reason))

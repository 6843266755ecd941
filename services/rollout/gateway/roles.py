"""The gateway's part in role changes: stop routing to a cell and empty it; route to it again (A6)."""

import asyncio
import logging

import grpc
import grpc.aio

from gyre.api.rollout.v1 import cells_pb2 as pb
from gyre.bus import Bus
from gyre.clock import Clock
from gyre.records import RoleChanged
from services.rollout.gateway.pool import CellPool

log = logging.getLogger(__name__)

DRAIN_TIMEOUT_S = 10.0
DRAIN_TRIES_MAX = 3
EMPTY_POLL_S = 0.02


class Roles:
    """Follows every cell's role and does what is the gateway's to do; whatever was done already is harmless to do again."""

    def __init__(self, pool: CellPool, bus: Bus, clock: Clock) -> None:
        self._pool = pool
        self._bus = bus
        self._clock = clock
        self._last: dict[str, RoleChanged] = {}
        self._acting: dict[str, asyncio.Task] = {}

    async def follow(self) -> None:
        """For ever. Old facts only set the scene: a cell is acted for by its newest fact."""
        caught_up_at = await self._bus.last_sequence([RoleChanged])
        caught_up = caught_up_at == 0
        async for fact, delivery in self._bus.follow([RoleChanged]):
            before = self._last.get(fact.cell)
            if fact.cell not in self._pool.routing.cells or (before is not None and fact.change < before.change):
                continue
            self._last[fact.cell] = fact
            if caught_up:
                self._act(fact)
            elif delivery.sequence >= caught_up_at:
                caught_up = True
                for newest in self._last.values():
                    self._act(newest)

    def returning(self) -> list[str]:
        """Cells that were asked back to rollout and do not serve yet."""
        return [
            name for name, fact in self._last.items() if fact.target == "rollout" and fact.phase != "serving" and fact.change > 0
        ]  # fmt: skip

    def _act(self, fact: RoleChanged) -> None:
        if fact.target == "training":
            self._pool.set_serving(fact.cell, False)
            if fact.phase == "requested":
                self._spawn(fact, self._drain(fact))
        elif fact.phase == "serving":
            self._pool.set_serving(fact.cell, True)
        elif fact.phase == "loaded":
            self._spawn(fact, self._serve(fact))
        else:
            self._pool.set_serving(fact.cell, False)

    def _spawn(self, fact: RoleChanged, work) -> None:
        task = asyncio.create_task(work)
        self._acting[fact.cell] = task
        task.add_done_callback(
            lambda done: done.cancelled() or (done.exception() and log.error("%s: %r", fact, done.exception()))
        )

    async def _drain(self, fact: RoleChanged) -> None:
        """Every call of the cell ends there with the tokens it has; they go on elsewhere by themselves."""
        from_s = self._clock.monotonic_s()
        moved = 0
        for _ in range(DRAIN_TRIES_MAX):
            try:
                moved += (
                    await self._pool.stubs[fact.cell].Drain(pb.DrainRequest(), timeout=DRAIN_TIMEOUT_S)
                ).moved_calls
                break
            except grpc.aio.AioRpcError as error:
                log.warning("drain of %s: %s", fact.cell, error.details())
        else:  # it does not answer: what streams have not broken by themselves are broken off
            self._pool.lose(fact.cell)
        while self._pool.running[fact.cell]:  # noqa: ASYNC110  milliseconds, once a role change
            await asyncio.sleep(EMPTY_POLL_S)
        await self._say(fact, "drained", from_s, moved)

    async def _serve(self, fact: RoleChanged) -> None:
        from_s = self._clock.monotonic_s()
        self._pool.set_serving(fact.cell, True)
        await self._say(fact, "serving", from_s)

    async def _say(self, fact: RoleChanged, phase: str, from_s: float, moved_calls: int = 0) -> None:
        record = RoleChanged(
            cell=fact.cell, change=fact.change, target=fact.target, phase=phase, at_s=self._clock.now_s(),
            duration_s=self._clock.monotonic_s() - from_s, burst=fact.burst, moved_calls=moved_calls,
        )  # fmt: skip
        await self._bus.publish(record)

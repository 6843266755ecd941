"""A cell is emptied for training, also one that does not answer (A6)."""

import asyncio
from types import SimpleNamespace

import grpc
import grpc.aio

from gyre.clock import ManualClock
from gyre.records import RoleChanged
from services.rollout.gateway.roles import DRAIN_TRIES_MAX, Roles
from tests.support import until


class StillCell:
    """Takes connections and says nothing."""

    def __init__(self) -> None:
        self.asked = 0

    async def Drain(self, _request, timeout: float):  # noqa: ASYNC109  as the stub has it
        self.asked += 1
        raise grpc.aio.AioRpcError(grpc.StatusCode.DEADLINE_EXCEEDED, grpc.aio.Metadata(), grpc.aio.Metadata())


class PoolDouble:
    def __init__(self, cell: StillCell) -> None:
        self.routing = SimpleNamespace(cells={"cell-0": object()})
        self.stubs, self.running = {"cell-0": cell}, {"cell-0": {"a call"}}

    def set_serving(self, _cell: str, _serving: bool) -> None:
        pass

    def lose(self, cell: str) -> None:
        self.running[cell].clear()


class BusDouble:
    """The facts given, then none."""

    def __init__(self, *facts: RoleChanged) -> None:
        self._facts, self.told = facts, []

    async def last_sequence(self, _kinds) -> int:
        return 0

    async def follow(self, _kinds):
        for number, fact in enumerate(self._facts):
            yield fact, SimpleNamespace(sequence=number + 1)
        await asyncio.Event().wait()

    async def publish(self, fact: RoleChanged) -> None:
        self.told.append((fact.cell, fact.phase))


async def test_a_cell_that_stands_still_is_empty_all_the_same():
    """Its streams never break by themselves; without `drained` no role would change any more, for moves are serial."""
    cell = StillCell()
    pool = PoolDouble(cell)
    bus = BusDouble(RoleChanged(cell="cell-0", change=1, target="training", phase="requested", at_s=0.0))
    following = asyncio.create_task(Roles(pool, bus, ManualClock(0.0)).follow())
    await until(lambda: bus.told == [("cell-0", "drained")])
    assert cell.asked == DRAIN_TRIES_MAX
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)

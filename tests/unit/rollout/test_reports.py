"""Cells that do not answer are reported, also on their way back from training (A3)."""

import asyncio
from types import SimpleNamespace

import grpc
import grpc.aio
import pytest

from gyre.clock import ManualClock
from services.rollout.gateway import reports
from services.rollout.gateway.reports import CellReports
from tests.support import until


class CellDouble:
    """A cell's process: it serves, is there without serving, or is gone (None)."""

    def __init__(self, serving: bool | None) -> None:
        self.serving = serving
        self.asked = 0

    async def GetStatus(self, _request, timeout: float):  # noqa: ASYNC109  as the stub has it
        self.asked += 1
        await asyncio.sleep(0)
        if self.serving is None:
            raise grpc.aio.AioRpcError(grpc.StatusCode.UNAVAILABLE, grpc.aio.Metadata(), grpc.aio.Metadata())
        return SimpleNamespace(serving=self.serving)


class PoolDouble(SimpleNamespace):
    """One cell; how often its calls were taken from it."""

    def __init__(self, name: str, cell: SimpleNamespace, process: CellDouble) -> None:
        super().__init__(routing=SimpleNamespace(cells={name: cell}), stubs={name: process}, lost=0)

    def lose(self, _cell: str) -> None:
        self.lost += 1


class BusDouble:
    def __init__(self, last: SimpleNamespace | None = None) -> None:
        self.told: list[tuple[str, int]] = []
        self._last = last

    async def newest(self, _kind: type, _key: str) -> SimpleNamespace | None:
        return self._last

    async def publish(self, fact) -> None:
        self.told.append((fact.cell, fact.capacity))


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(reports, "LOOK_S", 0.001)


async def test_a_process_that_died_while_its_cell_trained_is_reported_when_the_cell_is_wanted_back(quick):
    """While it trains nobody looks. Asked back it is reported once, and again when it serves."""
    process, routed = CellDouble(None), SimpleNamespace(serving=False)
    pool = PoolDouble("cell-1", routed, process)
    bus, returning = BusDouble(), []
    task = asyncio.create_task(CellReports(pool, bus, ManualClock(0.0), 64, lambda: returning).run())
    await asyncio.sleep(0.05)
    assert bus.told == [] and process.asked == 0
    returning.append("cell-1")
    await until(lambda: bus.told == [("cell-1", 0)])
    returning.clear()
    process.serving = routed.serving = True
    await until(lambda: bus.told == [("cell-1", 0), ("cell-1", 64)])
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize("is_known", [False, True])
async def test_a_lost_cell_that_went_to_training_is_reported_back_when_it_answers(quick, is_known):
    """It died while it served and was asked into training before or after that was said; its process is started anew and it trains. The scheduler
    asks nothing of a lost cell, so nobody else would ever bring it back. Also where an earlier gateway process reported it."""
    process, routed = CellDouble(None), SimpleNamespace(serving=not is_known)
    pool = PoolDouble("cell-0", routed, process)
    bus = BusDouble(SimpleNamespace(capacity=0) if is_known else None)
    lost = [] if is_known else [("cell-0", 0)]
    task = asyncio.create_task(CellReports(pool, bus, ManualClock(0.0), 64, lambda: []).run())
    await until(lambda: process.asked > 5 and bus.told == lost)
    routed.serving, process.serving = False, False
    await until(lambda: bus.told == [*lost, ("cell-0", 64)])
    asked = process.asked
    await asyncio.sleep(0.05)
    assert process.asked <= asked + 1 and bus.told == [*lost, ("cell-0", 64)], "nobody looks at a cell that trains"
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_cell_on_its_way_back_that_answers_is_not_lost_though_it_does_not_serve_yet(quick):
    """Weights are being loaded; of one that calls are routed to the same answer counts as none."""
    process, routed = CellDouble(False), SimpleNamespace(serving=False)
    pool = PoolDouble("cell-1", routed, process)
    bus, returning = BusDouble(), ["cell-1"]
    task = asyncio.create_task(CellReports(pool, bus, ManualClock(0.0), 64, lambda: returning).run())
    await until(lambda: process.asked > 10)
    assert bus.told == []
    returning.clear()
    routed.serving = True
    await until(lambda: bus.told == [("cell-1", 0)])
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_calls_are_taken_from_a_cell_that_does_not_answer_and_not_from_one_that_says_it_does_not_serve(quick):
    """The streams of a process that stands still never break; an engine that starts anew ends its calls itself."""
    process, routed = CellDouble(False), SimpleNamespace(serving=True)
    pool = PoolDouble("cell-0", routed, process)
    bus = BusDouble()
    task = asyncio.create_task(CellReports(pool, bus, ManualClock(0.0), 64, lambda: []).run())
    await until(lambda: bus.told == [("cell-0", 0)])
    assert pool.lost == 0
    process.serving = None
    await until(lambda: pool.lost > 0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)

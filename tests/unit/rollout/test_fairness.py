"""Admission when there are more sessions than places (ThunderAgent#46: of 64 agents that started together one waited 0.5 s, another 404 s)."""

import asyncio

import numpy as np

from gyre.clock import ManualClock
from gyre.records import Sampling
from services.rollout.core.routing import Routing
from services.rollout.gateway.pool import CellPool, Known, Work

SESSIONS, PLACES, CALLS = 1000, 50, 6


class Rounds(CellPool):
    """A pool whose cell ends all its calls together, one second after they began, when told to."""

    def __init__(self, clock: ManualClock, place_kept_s: float) -> None:
        super().__init__(Routing(["cell-0", "cell-1"], PLACES), {}, "", clock, place_kept_s)
        self.running = {"cell-0": set(), "cell-1": set()}
        self.beginning: list[asyncio.Future] = []

    async def _at(self, cell: str, work: Work) -> str:
        self.running[cell].add(work)
        self.beginning.append(end := asyncio.get_running_loop().create_future())
        await end
        self.running[cell].discard(work)
        return "stop"

    async def turn(self) -> None:
        """What has begun ends; whoever can begin begins."""
        ended, self.beginning = self.beginning, []
        assert len(ended) <= PLACES, "a cell that stays is not buried"
        for end in ended:
            end.set_result(None)
        for _ in range(20):  # until nothing moves: each step of a call is one pass of the loop
            await asyncio.sleep(0)


async def waits(place_kept_s: float) -> list[float]:
    """Seconds each session waited in all; every session makes CALLS calls, one after the other, all begin at once; half the pool is away."""
    clock = ManualClock(100.0)
    pool = Rounds(clock, place_kept_s)
    pool.set_serving("cell-0", True)
    sampling = Sampling(temperature=1.0, top_p=1.0, max_tokens=1, seed=1)

    async def session(name: str) -> float:
        waited_s = 0.0
        for index in range(CALLS):
            work = Work(
                f"{name}-{index}", name, np.array([1], np.int32), "", 0, Known(), sampling, (0,), 0, clock.now_s()
            )
            await pool.generate(work)
            waited_s += work.wait_s
        pool.forget(name)
        return waited_s

    tasks = [asyncio.create_task(session(f"s{index}")) for index in range(SESSIONS)]
    for _ in range(20):
        await asyncio.sleep(0)
    for _ in range(2 * SESSIONS * CALLS // PLACES):
        if all(task.done() for task in tasks):
            break
        clock.advance(1.0)
        await pool.turn()
    return [task.result() for task in tasks]


async def test_of_a_thousand_sessions_that_begin_together_none_waits_twice_the_mean():
    """1,000 sessions, 50 places, 6 calls of 1 s: 20 take turns at each place. Whoever is first in a round waits 19 s for the next, so the total of
    session k of its place is k + 5·19 s for k = 0 … 19: mean 104.5 s, longest 114 s."""
    waited_s = await waits(place_kept_s=0.0)
    assert sum(waited_s) / SESSIONS == 104.5
    assert max(waited_s) == 114.0 < 2 * 104.5


async def test_a_place_that_is_kept_for_some_calls_still_comes_round():
    """Kept for 3 s: three calls, then the next one's turn; nobody is left to the end. A round is 20 sessions × 3 s, and there are two: session k of
    its place waits 3k + 57 s: mean 85.5 s, longest 114 s."""
    waited_s = await waits(place_kept_s=3.0)
    assert sum(waited_s) / SESSIONS == 85.5
    assert max(waited_s) == 114.0 < 2 * 85.5

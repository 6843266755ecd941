"""An execution's wall clock stands still while it is suspended (C2)."""

import asyncio

from gyre.env.wall import WallClock


class Loop:
    """The running loop's clock, by hand."""

    def __init__(self, monkeypatch) -> None:
        self.now_s = 100.0
        monkeypatch.setattr("gyre.env.wall._now_s", lambda: self.now_s)


async def test_a_pause_moves_the_end_by_its_length(monkeypatch):
    """60 s, of which 10 have run; 1000 s of suspension take none."""
    loop, wall = Loop(monkeypatch), WallClock()
    wall.start(60.0)
    loop.now_s += 10
    wall.pause()
    wall.pause()
    loop.now_s += 1000
    assert wall.left_s() == 50.0
    wall.resume()
    wall.resume()
    loop.now_s += 20
    assert wall.left_s() == 30.0


async def test_what_is_suspended_before_it_starts_has_its_whole_wall_clock(monkeypatch):
    loop, wall = Loop(monkeypatch), WallClock()
    wall.pause()
    loop.now_s += 5
    wall.start(60.0)
    loop.now_s += 5
    assert wall.left_s() == 60.0
    wall.resume()
    assert wall.left_s() == 60.0


async def test_who_waits_for_it_to_go_on_is_woken():
    wall = WallClock()
    wall.pause()
    waiting = asyncio.ensure_future(wall.going())
    await asyncio.sleep(0)
    assert not waiting.done()
    wall.resume()
    await asyncio.wait_for(waiting, 60)


async def test_ended_from_outside_nothing_is_left_and_a_pause_is_over(monkeypatch):
    """C5: 40 s were left; paused or not, ended it has 0 s, once and for all, and says why."""
    loop, wall = Loop(monkeypatch), WallClock()
    wall.start(60.0)
    loop.now_s += 20
    wall.pause()
    wall.expire("truncated")
    wall.expire("later word")
    loop.now_s += 5
    assert (wall.left_s(), wall.reason, wall.cut.is_set()) == (-5.0, "truncated", True)
    await asyncio.wait_for(wall.going(), 60)
    late = WallClock()
    late.expire("truncated")
    late.start(60.0)
    assert late.left_s() == 0.0, "told before it had begun"


async def test_work_is_cancelled_when_the_clock_is_ended_and_its_result_given_otherwise():
    wall, was_cancelled = WallClock(), asyncio.Event()

    async def endless() -> int:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            was_cancelled.set()
            raise
        return 1

    async def done() -> int:
        return 7

    assert await wall.until_cut(done()) == 7
    waiting = asyncio.ensure_future(wall.until_cut(endless()))
    await asyncio.sleep(0)
    wall.expire("truncated")
    assert await asyncio.wait_for(waiting, 60) is None
    await asyncio.wait_for(was_cancelled.wait(), 60)

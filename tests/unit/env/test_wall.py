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
    await asyncio.wait_for(waiting, 5)

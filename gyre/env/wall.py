"""An execution's wall clock. It stands still while the execution is suspended (C2), and can be ended from outside (C5)."""

import asyncio
import time
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class WallClock:
    """Counts down `wall_s` seconds from `start`, on time.monotonic's clock, which threads may ask as well."""

    def __init__(self) -> None:
        self._end_s = 0.0
        self._paused_at_s: float | None = None
        self._going = asyncio.Event()
        self._going.set()
        self.cut = asyncio.Event()
        """Set once it was ended from outside."""
        self.reason = "wall"
        """Why its end ends the execution, in ExecutionEnded's words."""

    def start(self, wall_s: float) -> None:
        """From here on it runs, unless it is paused or was ended already."""
        now_s = _now_s()
        self._end_s = now_s if self.cut.is_set() else now_s + wall_s
        if self._paused_at_s is not None:
            self._paused_at_s = now_s

    def pause(self) -> None:
        """Repeats change nothing."""
        if self._paused_at_s is None:
            self._paused_at_s = _now_s()
            self._going.clear()

    def resume(self) -> None:
        """The end moves by as long as the pause was. Repeats change nothing."""
        if self._paused_at_s is not None:
            self._end_s += _now_s() - self._paused_at_s
            self._paused_at_s = None
            self._going.set()

    def expire(self, reason: str) -> None:
        """Its time is up now, whatever was left; a pause ends. Repeats change nothing."""
        if not self.cut.is_set():
            self.resume()
            self._end_s, self.reason = _now_s(), reason
            self.cut.set()

    async def run_out(self) -> None:
        """Ends it when its seconds are over, pauses not counted; for work that is cut off by `cut` alone."""
        while (left_s := self.left_s()) > 0:
            await self.going()
            await asyncio.sleep(left_s)
        self.expire(self.reason)

    async def until_cut(self, work: Coroutine[Any, Any, T]) -> T | None:
        """What `work` returns; None, and `work` cancelled, when the clock is ended from outside meanwhile."""
        working, cutting = asyncio.ensure_future(work), asyncio.ensure_future(self.cut.wait())
        try:
            await asyncio.wait({working, cutting}, return_when=asyncio.FIRST_COMPLETED)
            return working.result() if working.done() else None
        finally:
            cutting.cancel()
            working.cancel()

    def left_s(self) -> float:
        """Seconds left, negative past the end."""
        return self._end_s - (_now_s() if self._paused_at_s is None else self._paused_at_s)

    async def going(self) -> None:
        """Returns when it is not paused."""
        await self._going.wait()


def _now_s() -> float:
    return time.monotonic()

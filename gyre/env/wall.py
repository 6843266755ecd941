"""An execution's wall clock. It stands still while the execution is suspended (C2)."""

import asyncio


class WallClock:
    """Counts down `wall_s` seconds from `start`, on the running loop's clock."""

    def __init__(self) -> None:
        self._end_s = 0.0
        self._paused_at_s: float | None = None
        self._going = asyncio.Event()
        self._going.set()

    def start(self, wall_s: float) -> None:
        """From here on it runs, unless it is paused already."""
        now_s = _now_s()
        self._end_s = now_s + wall_s
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

    def left_s(self) -> float:
        """Seconds left, negative past the end."""
        return self._end_s - (_now_s() if self._paused_at_s is None else self._paused_at_s)

    async def going(self) -> None:
        """Returns when it is not paused."""
        await self._going.wait()


def _now_s() -> float:
    return asyncio.get_running_loop().time()

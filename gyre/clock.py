"""Clocks are passed in: cores receive `now_s` as an argument, shells own one `Clock`."""

import time
from typing import Protocol


class Clock(Protocol):
    """Seconds since the Unix epoch, and a monotonic reading for durations."""

    def now_s(self) -> float: ...

    def monotonic_s(self) -> float: ...


class SystemClock:
    """The machine's own clocks."""

    def now_s(self) -> float:
        return time.time()

    def monotonic_s(self) -> float:
        return time.monotonic()


class ManualClock:
    """A clock for tests and simulation, moved by hand."""

    def __init__(self, start_s: float = 0.0) -> None:
        self._now_s = start_s

    def now_s(self) -> float:
        return self._now_s

    def monotonic_s(self) -> float:
        return self._now_s

    def advance(self, seconds: float) -> None:
        """Move forward; time never runs backwards."""
        if seconds < 0:
            raise ValueError(f"cannot advance by {seconds} s")
        self._now_s += seconds

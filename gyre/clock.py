"""Clocks are passed in: cores receive `now_s` as an argument, shells own one `Clock`.

Unix time is taken once for a run and counted on from there by the seconds since boot, which nobody can set: a machine whose clock is set in the
middle of a run (by hand, or by NTP after a long time without) neither ends waits early nor prolongs them.
"""

import json
import os
import time
from pathlib import Path
from typing import Protocol

BOOT_FILE = Path("/proc/sys/kernel/random/boot_id")
OFFSET_FILE = "clock.json"


class Clock(Protocol):
    """Seconds since the Unix epoch, and a monotonic reading for durations."""

    def now_s(self) -> float: ...

    def monotonic_s(self) -> float: ...


def since_boot_s() -> float:
    """Goes on while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class SystemClock:
    """The machine's own clocks."""

    def __init__(self, offset_s: float | None = None) -> None:
        """`offset_s`: Unix time at boot; as the machine's clock has it now where it is left out."""
        self._offset_s = time.time() - since_boot_s() if offset_s is None else offset_s

    def now_s(self) -> float:
        return since_boot_s() + self._offset_s

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


def clock_of_run(root: Path) -> SystemClock:
    """The clock that the processes of a run share; one of its own where the run was begun on another machine, or before the last boot."""
    return SystemClock(_offset_s(root))


def fix_clock(root: Path) -> None:
    """Fix the run's clock, where that has not been done since the machine was booted."""
    if _offset_s(root) is None:
        temporary = root / f"{OFFSET_FILE}.new"
        temporary.write_text(json.dumps({"boot": _boot(), "offset_s": time.time() - since_boot_s()}))
        os.replace(temporary, root / OFFSET_FILE)


def _offset_s(root: Path) -> float | None:
    try:
        fixed = json.loads((root / OFFSET_FILE).read_text())
        return float(fixed["offset_s"]) if fixed["boot"] == _boot() else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _boot() -> str:
    return BOOT_FILE.read_text().strip()

"""Moments that come from outside: which numbers are one, as a day, as nanoseconds. The books' own are Unix seconds."""

import math
from datetime import UTC, datetime, timedelta

from gyre.errors import InvalidInput

END_S = 253_402_300_800
"""The year 10000, first moment that no calendar here can write. Unix time in milliseconds or nanoseconds lies far beyond it."""
NS_PER_S = 1e9
NS_MAX = 2.0**63 - 1024
"""The largest real number below 2**63."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def moment_s(name: str, seconds: float) -> float:
    """`seconds`, where they are a moment. Raises InvalidInput, naming it."""
    if not is_moment(seconds):
        raise InvalidInput(f"{name} {seconds:g} is no moment in Unix seconds, from 1970 to the year 9999")
    return seconds


def is_moment(seconds: float) -> bool:
    return 0 <= seconds < END_S


def day(at_s: float | None) -> str:
    """The day in UTC, 2026-11-30; empty for what is no moment."""
    return (_EPOCH + timedelta(seconds=at_s)).date().isoformat() if at_s is not None and is_moment(at_s) else ""


def bounded_ns(at_s: float) -> int:
    """Nanoseconds as a column of 64 bits holds them: what lies before 1970, or beyond its end, is its bound. Raises InvalidInput for NaN."""
    if math.isnan(at_s):
        raise InvalidInput("NaN is no moment in Unix seconds")
    return int(min(max(at_s, 0.0) * NS_PER_S, NS_MAX))

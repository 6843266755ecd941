"""Before and now: whether a mean has moved, and by more than chance."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

SCALES = (8, 4, 2)
"""Parts of a window that are compared with the part before: short ones see soon what moves fast, long ones what moves slowly."""
MAD_TO_DEVIATION = 1.4826
"""Median absolute deviation of a normal distribution → its standard deviation."""


@dataclass(frozen=True)
class Trend:
    count: int
    """Values on each side."""
    before: float
    now: float
    error: float
    """Standard error of the difference of the two means."""

    @property
    def rise(self) -> float:
        return self.now - self.before

    @property
    def z(self) -> float:
        """The rise in standard errors; infinite where nothing varies and the means differ."""
        return self.rise / self.error if self.error else float(np.sign(self.rise)) * float("inf") if self.rise else 0.0


def halves(values_P: npt.ArrayLike, count: int) -> Trend | None:
    """The newest `count` of values, oldest first, against the `count` before them; None where there are too few."""
    values = np.asarray(values_P, np.float64)
    if count < 2 or len(values) < 2 * count:
        return None
    before, now = values[-2 * count : -count], values[-count:]
    error = float(np.sqrt((before.var(ddof=1) + now.var(ddof=1)) / count))
    return Trend(count, float(before.mean()), float(now.mean()), error)


def scales(values: Iterable[float], window: int) -> list[Trend]:
    """A trend for each of SCALES that there are enough values for."""
    points = np.asarray(list(values), np.float64)
    return [found for part in SCALES if (found := halves(points, window // part)) is not None]


def share_z(hits: int, count: int, other_hits: int, other_count: int) -> float:
    """Standard errors between two shares, pooled; 0 where one of them is of nothing."""
    if not count or not other_count:
        return 0.0
    pooled = (hits + other_hits) / (count + other_count)
    error = (pooled * (1 - pooled) * (1 / count + 1 / other_count)) ** 0.5
    return (hits / count - other_hits / other_count) / error if error else 0.0


def robust_z(value: float, others: npt.ArrayLike) -> float:
    """How far `value` lies above the others' median, in deviations that outliers among them do not move; 0 without others.

    Where more than half of them are equal the deviation is taken as a hundredth of their size, lest any difference be infinite.
    """
    values = np.asarray(others, np.float64)
    if not len(values):
        return 0.0
    middle = float(np.median(values))
    deviation = MAD_TO_DEVIATION * float(np.median(np.abs(values - middle)))
    return (value - middle) / max(deviation, 0.01 * abs(middle), 1e-12)

"""How decoding slows under load, as a law that the simulator has: a straight line of time per token or a knee, whichever is nearer."""

from services.scheduler.core.history import History
from services.scheduler.simulator.spec import Speed

KNEES = tuple(index / 20 for index in range(4, 20))
POWERS = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
BETTER = 0.7
"""The knee has a parameter more, so it must leave clearly less of the error."""
SHARE_MIN = 0.02
"""Bands of load with less weight than this say nothing."""

Point = tuple[float, float, float]
"""(load, seconds per token, weight)"""


def fitted(history: History) -> tuple[float, Speed]:
    """(seconds per token on an empty cell, slowing under load)."""
    token_s, slowdown = history.speed()
    line = Speed(family="hyperbolic", slowdown=slowdown)
    points = [(load, 1.0 / rate, weight) for load, rate, weight in history.speeds() if weight > SHARE_MIN]
    if len(points) < 3:
        return token_s, line
    best_error, best_s, best = BETTER * _error(points, token_s, line), token_s, line
    for knee in KNEES:
        for power in POWERS:
            speed = Speed(family="knee", knee=knee, power=power)
            scale_s = _scale(points, speed)
            error = _error(points, scale_s, speed)
            if error < best_error:
                best_error, best_s, best = error, scale_s, speed
    return best_s, best


def _scale(points: list[Point], speed: Speed) -> float:
    """Least squares of y = scale / speed(x)."""
    above = sum(weight * y / speed.at(x) for x, y, weight in points)
    return above / sum(weight / speed.at(x) ** 2 for x, _, weight in points)


def _error(points: list[Point], scale_s: float, speed: Speed) -> float:
    return sum(weight * (y - scale_s / speed.at(x)) ** 2 for x, y, weight in points)

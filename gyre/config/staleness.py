"""The law of staleness (docs/staleness.md, with its proof): what the knobs promise, by kind of dispatch. The one place that knows it.

    boundary      mean φ + (μ − 1)/2        at most ⌈φ⌉ + μ − 1
    continuous    mean φ + 3·(μ − 1)/2      at most ⌈φ⌉ + 2·(μ − 1)

with φ `extra_depth_steps` and μ `steps_per_publish`, in optimizer steps. The maximum is that of strict oldest first: training, which takes the
oldest *ready* group, keeps it for φ > 0 only where a cap of age holds its batches open.
"""

import math
from typing import Literal

from gyre.config.sections import SchedulerConfig

Dispatch = Literal["boundary", "continuous"]

_BURST_SHARE = {"boundary": 0.5, "continuous": 1.5}
"""Of the mean, by each step that a burst has more than one."""


def mean_steps(depth: float, burst: int, dispatch: Dispatch) -> float:
    """Mean staleness of φ = `depth` and μ = `burst`, steps."""
    return depth + _BURST_SHARE[dispatch] * (burst - 1)


def depth_steps(mean: float, burst: int, dispatch: Dispatch) -> float:
    """φ that gives this mean; below 0 where bursts of so many steps are staler than that."""
    return mean - _BURST_SHARE[dispatch] * (burst - 1)


def burst_max(mean: float, dispatch: Dispatch) -> int:
    """The longest burst, in steps, of at most this mean."""
    return math.floor(mean / _BURST_SHARE[dispatch] + 1e-9) + 1


def strict_max_steps(depth: float, burst: int, dispatch: Dispatch) -> int:
    """No group is staler under strict oldest first, steps."""
    return math.ceil(depth) + (burst - 1) * (1 if dispatch == "boundary" else 2)


def law_steps(scheduler: SchedulerConfig) -> float:
    """Mean staleness that a run with these settings has in steady state, steps (A5)."""
    return mean_steps(scheduler.extra_depth_steps, scheduler.steps_per_publish, scheduler.dispatch)


def law_words(dispatch: Dispatch) -> str:
    """The law in the names of the settings, for who has to change them."""
    factor = "" if dispatch == "boundary" else "3·"
    return f"scheduler.extra_depth_steps + {factor}(steps_per_publish − 1)/2"

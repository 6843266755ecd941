"""Candidates: every burst length that keeps the promised mean staleness, by both role rules, and how late cells are released."""

from gyre.config import SchedulerConfig
from gyre.config.staleness import Dispatch, burst_max, depth_steps, mean_steps, strict_max_steps
from services.scheduler.core import Knobs
from services.scheduler.simulator import Spec, changed

RELEASE_SHARES = (0.3, 0.4, 0.55, 0.7, 0.85, 1.0)
SCREEN_SHARE = 0.85
"""ρ with which burst lengths are compared: within a few per cent of the best nearly everywhere."""


def staleness_mean(knobs: Knobs, dispatch: Dispatch) -> float:
    """The law's mean of these knobs, steps."""
    return mean_steps(knobs.extra_depth_steps, knobs.steps_per_publish, dispatch)


def strict_max(knobs: Knobs | SchedulerConfig, dispatch: Dispatch) -> int:
    """Their maximum under strict oldest first, steps."""
    return strict_max_steps(knobs.extra_depth_steps, knobs.steps_per_publish, dispatch)


def shapes(configured: Knobs, age_steps_max: int, dispatch: Dispatch = "boundary") -> list[Knobs]:
    """(μ, φ) with the configured mean that can keep the cap without dropping anything, one way and two way, at SCREEN_SHARE."""
    mean = staleness_mean(configured, dispatch)
    found = []
    for burst in range(1, burst_max(mean, dispatch) + 1):
        depth = depth_steps(mean, burst, dispatch)
        for is_two_way in (False, True):
            knobs = Knobs(
                steps_per_publish=burst, extra_depth_steps=max(0.0, depth), release_share=SCREEN_SHARE, is_two_way=is_two_way,
                order=configured.order,
            )  # fmt: skip
            if strict_max(knobs, dispatch) <= age_steps_max:
                found.append(knobs)
    return found


def spec_with(spec: Spec, knobs: Knobs) -> Spec:
    """The simulated run with these knobs."""
    return changed(
        spec, mode="elastic_plus" if knobs.is_two_way else "elastic", steps_per_publish=knobs.steps_per_publish,
        extra_depth_steps=knobs.extra_depth_steps, release_share=knobs.release_share, order=knobs.order, plan_every_bursts=0,
    )  # fmt: skip

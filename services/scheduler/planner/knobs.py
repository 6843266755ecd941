"""Candidates: every burst length that keeps the promised mean staleness, by both role rules, and how late cells are released."""

import math

from gyre.config import SchedulerConfig
from services.scheduler.core import Knobs
from services.scheduler.simulator import Spec, changed

RELEASE_SHARES = (0.3, 0.4, 0.55, 0.7, 0.85, 1.0)
SCREEN_SHARE = 0.85
"""ρ with which burst lengths are compared: within a few per cent of the best nearly everywhere."""


def staleness_mean(knobs: Knobs | SchedulerConfig) -> float:
    """s = φ + (μ − 1)/2, the law of boundary dispatch (docs/staleness.md)."""
    return knobs.extra_depth_steps + (knobs.steps_per_publish - 1) / 2


def strict_max(knobs: Knobs | SchedulerConfig) -> int:
    """⌈φ⌉ + μ − 1: no group is staler under strict oldest first (docs/staleness.md). With φ = 0 none is in any order; with φ > 0 training, which
    takes the oldest *ready* group, keeps it only where a cap of age holds its batches open."""
    return math.ceil(knobs.extra_depth_steps) + knobs.steps_per_publish - 1


def shapes(configured: Knobs, age_steps_max: int) -> list[Knobs]:
    """(μ, φ) with the configured mean that can keep the cap without dropping anything, one way and two way, at SCREEN_SHARE."""
    mean = staleness_mean(configured)
    found = []
    for burst in range(1, math.floor(2 * mean + 1e-9) + 2):
        depth = mean - (burst - 1) / 2
        for is_two_way in (False, True):
            knobs = Knobs(
                steps_per_publish=burst, extra_depth_steps=max(0.0, depth), release_share=SCREEN_SHARE, is_two_way=is_two_way,
                order=configured.order,
            )  # fmt: skip
            if strict_max(knobs) <= age_steps_max:
                found.append(knobs)
    return found


def spec_with(spec: Spec, knobs: Knobs) -> Spec:
    """The simulated run with these knobs."""
    return changed(
        spec, mode="elastic_plus" if knobs.is_two_way else "elastic", steps_per_publish=knobs.steps_per_publish,
        extra_depth_steps=knobs.extra_depth_steps, release_share=knobs.release_share, order=knobs.order, plan_every_bursts=0,
    )  # fmt: skip

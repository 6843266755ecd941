"""How much work the executions of a group are. Pure: the same for every configuration of a comparison, and for the simulator."""

import math
from random import Random

from gyre.config.sections import EmulationConfig


def works_s(emulation: EmulationConfig, seed: int, members: int) -> list[float]:
    """Seconds of each execution of the group of task `seed`, alone on a cell at full speed.

    Lognormal with ln-σ `work_sigma`; the share `group_share` of its variance is common to the group, so that a hard task is long for all.
    """
    draws = Random(f"work {seed}")
    common = draws.gauss(0.0, 1.0) * math.sqrt(emulation.group_share)
    own = math.sqrt(1.0 - emulation.group_share)
    return [
        emulation.work_median_s * math.exp(emulation.work_sigma * (common + own * draws.gauss(0.0, 1.0)))
        for _ in range(members)
    ]


def outcome(seed: int, member: int) -> float:
    """A graded outcome in [0, 1), different for each member, so that every group has a gradient."""
    return Random(f"outcome {seed} {member}").random()

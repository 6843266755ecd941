"""Advantages by name: one reward for each *execution* of a group → one advantage each.

The baseline is taken over executions, never over the rows they are split into (slime#2302): rewards [1,1,1,0] whose first three rows are
one execution are the two rewards [1,0].
"""

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

Advantage = Callable[[npt.NDArray], npt.NDArray]


def group(rewards: npt.NDArray) -> npt.NDArray:
    """float64[N] → float64[N]: reward − mean of the group."""
    return rewards - rewards.mean()


def group_std(rewards: npt.NDArray) -> npt.NDArray:
    """As `group`, divided by the group's (population) standard deviation (GRPO, arXiv 2402.03300)."""
    return (rewards - rewards.mean()) / rewards.std()


def leave_one_out(rewards: npt.NDArray) -> npt.NDArray:
    """Reward − mean of the others (RLOO, arXiv 2402.14740); N at least 2."""
    return group(rewards) * len(rewards) / (len(rewards) - 1)


def zero(rewards: npt.NDArray) -> npt.NDArray:
    """Nothing: a control that must not learn."""
    return np.zeros_like(rewards)


ADVANTAGES: dict[str, Advantage] = {
    "group": group,
    "group_std": group_std,
    "leave_one_out": leave_one_out,
    "zero": zero,
}


def advantages(name: str, rewards: Sequence[float]) -> list[float]:
    """Rewards of a group's executions → their advantages, exactly zero where the rewards do not differ or stand alone."""
    values = np.asarray(rewards, np.float64)
    if len(values) < 2 or values.min() == values.max():
        return [0.0] * len(values)
    return [float(value) for value in ADVANTAGES[name](values)]

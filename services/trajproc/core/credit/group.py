"""Advantages of executions by name: one reward for each *execution* of a group → one advantage each.

The baseline is taken over executions, never over the rows they are split into (slime#2302): rewards [1,1,1,0] whose first three rows are
one execution are the two rewards [1,0].
"""

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

ROUNDING = 1e-9
"""What a sum of rewards leaves by rounding must not look like a gradient; rewards are of the order of 1. Divided by its own deviation it would be as
large as any."""

Advantage = Callable[[npt.NDArray, npt.NDArray], npt.NDArray]
"""(rewards float64[N], lengths float64[N]: sampled tokens of each execution) → advantages float64[N]."""


def group(rewards: npt.NDArray, _lengths: npt.NDArray) -> npt.NDArray:
    """Reward − mean of the group, unscaled (Dr. GRPO, arXiv 2503.20783: dividing by the deviation favours too easy and too hard tasks)."""
    return rewards - rewards.mean()


def group_std(rewards: npt.NDArray, lengths: npt.NDArray) -> npt.NDArray:
    """As `group`, divided by the group's (population) standard deviation (GRPO, arXiv 2402.03300, section 4.1)."""
    return group(rewards, lengths) / rewards.std()


def group_median(rewards: npt.NDArray, _lengths: npt.NDArray) -> npt.NDArray:
    """Reward − median: one outlier does not move the baseline of a small group (the centring of MC-GRPO, arXiv 2601.22582).

    Where more than half agree they have no gradient, and the advantages do not sum to zero.
    """
    return rewards - np.median(rewards)


def leave_one_out(rewards: npt.NDArray, lengths: npt.NDArray) -> npt.NDArray:
    """Reward − mean of the others = (reward − mean)·N/(N − 1) (RLOO, arXiv 2402.14740); N at least 2."""
    return group(rewards, lengths) * len(rewards) / (len(rewards) - 1)


def max_rl(rewards: npt.NDArray, lengths: npt.NDArray) -> npt.NDArray:
    """(Reward − mean)/mean: the gradient of log success up to order N (MaxRL, arXiv 2602.02710, algorithm 1).

    Derived for outcomes 0 and 1: a task solved with probability p weighs 1/p. Zero where the mean is not positive (nothing succeeded).
    """
    mean = rewards.mean()
    return group(rewards, lengths) / mean if mean > 0 else np.zeros_like(rewards)


def optimal(rewards: npt.NDArray, lengths: npt.NDArray) -> npt.NDArray:
    """Reward − Σ l·r/Σ l: the baseline of least variance if a gradient's square grows with the length (OPO, arXiv 2505.23585, section 3.2).

    Here an execution's gradient is a mean over its tokens, so this is offered for the token norm and for comparison.
    """
    return rewards - (rewards @ lengths / lengths.sum() if lengths.sum() > 0 else rewards.mean())


def reward(rewards: npt.NDArray, _lengths: npt.NDArray) -> npt.NDArray:
    """The reward itself, without a baseline (REINFORCE, Williams 1992): unbiased, and of large variance."""
    return rewards.copy()


def zero(rewards: npt.NDArray, _lengths: npt.NDArray) -> npt.NDArray:
    """Nothing: a control that must not learn."""
    return np.zeros_like(rewards)


ADVANTAGES: dict[str, Advantage] = {
    function.__name__: function
    for function in (group, group_std, group_median, leave_one_out, max_rl, optimal, reward, zero)
}


def differ(rewards: npt.NDArray) -> bool:
    """Whether a group's outcomes differ by more than rounding leaves."""
    return len(rewards) > 1 and bool(rewards.max() - rewards.min() > ROUNDING)


def advantages(name: str, rewards: Sequence[float], lengths: Sequence[float] | None = None) -> list[float]:
    """Rewards of a group's executions (and their sampled tokens, 1 each where not given) → their advantages.

    What is relative to the group is exactly zero where its rewards do not differ or stand alone.
    """
    values = np.asarray(rewards, np.float64)
    weights = np.ones_like(values) if lengths is None else np.asarray(lengths, np.float64)
    if name != "reward" and not differ(values):
        return [0.0] * len(values)
    return [float(value) for value in ADVANTAGES[name](values, weights)]

"""Advantages along one execution: generalised advantage estimation over steps of several calls, and its fusion with the execution's (D3)."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from services.trajproc.core.credit.group import differ


def gae(rewards: npt.NDArray, values: npt.NDArray, lengths: Sequence[int], gamma: float, lambda_: float) -> npt.NDArray:
    """float64[K] of steps with rewards R_k, values V_k at their beginning and n_k calls → float64[K]; the value after the last step is 0.

    δ_k = R_k + γ^{n_k} V_{k+1} − V_k and A_k = δ_k + γ^{n_k} λ A_{k+1} (arXiv 1506.02438, equation 16, with a step of n calls discounted as
    an option is: Sutton, Precup & Singh 1999). λ = 1: return minus value; λ = 0: the step's own δ. With n_k = 1 it is turn-level GAE.
    """
    discounts = gamma ** np.asarray(lengths, np.float64)
    deltas = rewards + discounts * np.append(values[1:], 0.0) - values
    found, later = np.zeros(len(rewards)), 0.0
    for k in range(len(rewards) - 1, -1, -1):
        found[k] = later = deltas[k] + discounts[k] * lambda_ * later
    return found


def returns(rewards: npt.NDArray, lengths: Sequence[int], gamma: float) -> npt.NDArray:
    """float64[K]: discounted rewards from the beginning of each step to the end, what a critic learns from (λ = 1)."""
    return gae(rewards, np.zeros(len(rewards)), lengths, gamma, 1.0)


def lambda_of(steps: int, scale: float) -> float:
    """λ = 1 − 1/(a·K), at least 0: the longer an execution, the further its outcome reaches back (VAPO, arXiv 2504.05118, section 4.2).

    a = 0 stands for λ = 1, nothing bootstrapped.
    """
    return 1.0 if scale <= 0 else max(0.0, 1.0 - 1.0 / (scale * max(1, steps)))


def kappa_of(rewards: npt.NDArray, spread: float) -> float:
    """κ = s_R/(s_R + s_0), s_R the group's (population) reward deviation: 0 where outcomes do not differ, near 1 where they do."""
    deviation = float(rewards.std()) if differ(rewards) else 0.0
    return deviation / (deviation + spread) if deviation > 0 else 0.0


def fuse(kappa: float, of_execution: float, of_segments: npt.NDArray) -> npt.NDArray:
    """A = κ·A_exec + (1 − κ)·A_seg, float64[K]."""
    return kappa * of_execution + (1.0 - kappa) * of_segments

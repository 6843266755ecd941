"""How long executions of a task type last, learned from those that ended (C1).

Durations of agents' tasks are close to lognormal, so the estimate is the mean and variance of the logarithm, with an exponential memory that
follows a drifting workload. An execution that reached its wall limit counts as having lasted that long, which is also what it will cost.
"""

import math
from statistics import NormalDist

import msgspec

MEMORY_EXECUTIONS = 64
"""Beyond this many executions the means are exponential."""
PRIOR_LOG_VARIANCE = 0.35
PRIOR_EXECUTIONS = 4
"""Before it has seen much, a type is taken for one with σ = .59, in the middle of what agents show (.55–1.3), worth as much as four executions."""
QUANTILES = (0.1, 0.5, 0.9)
_DESCENDING = tuple((index, NormalDist().inv_cdf(QUANTILES[index])) for index in reversed(range(len(QUANTILES))))
"""(index of a quantile, its z)"""
DURATION_S_MIN = 1e-3
"""The logarithm needs a floor; nothing that matters to dispatch is shorter."""


class Estimate(msgspec.Struct):
    """Of one task type."""

    executions: int = 0
    log_mean: float = 0.0
    """Of the duration in seconds."""
    log_variance: float = PRIOR_LOG_VARIANCE
    below: list[int] = msgspec.field(default_factory=lambda: [0] * len(QUANTILES))
    """Of the `judged`, how many ended below each of the predicted QUANTILES; calibrated if the shares are near them."""

    def learn(self, lasted_s: float) -> None:
        """One more execution has ended. First it judges the estimate as it was, then it becomes part of it."""
        log_s = math.log(max(lasted_s, DURATION_S_MIN))
        self.executions = executions = self.executions + 1
        if executions == 1:
            self.log_mean = log_s
            return
        off, variance = log_s - self.log_mean, self.log_variance
        self._judge(off, math.sqrt(variance))
        share = 1.0 / min(executions, MEMORY_EXECUTIONS)
        prior_share = 1.0 / min(executions + PRIOR_EXECUTIONS, MEMORY_EXECUTIONS)
        self.log_mean += share * off
        self.log_variance = variance + prior_share * ((1.0 - share) * off * off - variance)

    def _judge(self, off: float, sigma: float) -> None:
        """From the highest quantile down: what ended above one ended above those below it."""
        for index, z in _DESCENDING:
            if off >= z * sigma:
                break
            self.below[index] += 1

    @property
    def judged(self) -> int:
        """Executions that ended after a prediction had been made from what came before: all but the first."""
        return max(0, self.executions - 1)

    @property
    def mean_s(self) -> float:
        """Expected duration: E exp(m + σz) = exp(m + σ²/2)."""
        return math.exp(self.log_mean + self.log_variance / 2)

    def expected_max_s(self, draws: int) -> float:
        """Expected duration of the longest of `draws` executions: exp(m + σ·e_N + σ²·v_N/2) with mean and variance of the largest of N standard
        normals. Exact for one draw; within 3 % of simulation for σ ≤ .7 and N ≤ 64."""
        mean, variance = largest_normal(draws)
        return math.exp(self.log_mean + math.sqrt(self.log_variance) * mean + self.log_variance * variance / 2)

    def calibration(self) -> dict[float, float]:
        """Quantile → share of executions that ended below the prediction of it; empty before any was judged."""
        return {q: self.below[i] / self.judged for i, q in enumerate(QUANTILES)} if self.judged else {}


def largest_normal(draws: int) -> tuple[float, float]:
    """Mean (Blom 1958: Φ⁻¹((N − .375)/(N + .25))) and variance (a fit, 2 % up to N = 64) of the largest of N standard normals."""
    if draws <= 1:
        return 0.0, 1.0
    log = math.log(draws)
    return NormalDist().inv_cdf((draws - 0.375) / (draws + 0.25)), 1.0 / (1.0 + 0.62 * log + 0.08 * log * log)


def predicted_s(estimates: dict[str, Estimate], task_type: str, wall_s: float) -> float:
    """Expected duration of an execution: by its task type, at most its wall limit, and that while nothing is known."""
    estimate = estimates.get(task_type)
    return min(wall_s, estimate.mean_s) if estimate and estimate.executions else wall_s


def predicted_group_s(estimates: dict[str, Estimate], task_type: str, wall_s: float, draws: int) -> float:
    """Expected duration of a group: of the longest of its members."""
    estimate = estimates.get(task_type)
    return min(wall_s, estimate.expected_max_s(draws)) if estimate and estimate.executions else wall_s

"""What is learned about durations (C1)."""

import math
import random

import pytest

from services.scheduler.core.estimate import QUANTILES, Estimate, predicted_group_s, predicted_s


def learned(durations_s) -> Estimate:
    estimate = Estimate()
    for lasted_s in durations_s:
        estimate.learn(lasted_s)
    return estimate


def test_mean_and_variance_of_the_logarithm_are_found():
    """C1: lognormal, median 100 s, σ .5: within what 64 executions' memory allows (standard error of the mean .5·√(1/127) = .044)."""
    rng = random.Random(1)
    estimate = learned(rng.lognormvariate(math.log(100.0), 0.5) for _ in range(2000))
    assert estimate.log_mean == pytest.approx(math.log(100.0), abs=4 * 0.044)
    assert estimate.log_variance == pytest.approx(0.25, rel=0.6)


def test_the_estimate_follows_a_workload_that_drifts():
    """C1: durations double; after three memories (192 executions) 1 − e⁻³ = 95 % of the change is learned."""
    estimate = learned([10.0] * 300 + [20.0] * 192)
    assert estimate.log_mean == pytest.approx(math.log(20.0), abs=0.06 * math.log(2.0))


@pytest.mark.parametrize("sigma", [0.3, 0.7])
@pytest.mark.parametrize("draws", [1, 2, 8, 16, 64])
def test_the_expected_longest_of_a_group_is_close_to_simulation(sigma, draws):
    """C1: within 3 % of 4,000 simulated groups, whose own standard error is below 1.5 %."""
    rng = random.Random(draws)
    groups = 4000
    simulated = sum(max(rng.lognormvariate(0.0, sigma) for _ in range(draws)) for _ in range(groups)) / groups
    estimate = Estimate(executions=100, log_mean=0.0, log_variance=sigma**2)
    assert estimate.expected_max_s(draws) == pytest.approx(simulated, rel=0.045)


def test_a_prediction_is_at_most_the_wall_limit_and_that_while_nothing_is_known():
    """C1: whoever runs longer is cut there."""
    estimates = {"known": Estimate(executions=10, log_mean=math.log(100.0), log_variance=0.2)}
    assert predicted_s(estimates, "unknown", 60.0) == predicted_group_s(estimates, "unknown", 60.0, 8) == 60.0
    assert predicted_s(estimates, "known", 60.0) == 60.0
    assert predicted_s(estimates, "known", 1e4) == pytest.approx(100.0 * math.exp(0.1))
    assert predicted_group_s(estimates, "known", 1e4, 8) > predicted_group_s(estimates, "known", 1e4, 2)


def test_calibration_tells_how_often_the_predicted_quantiles_held():
    """C1: 2,000 executions of the family that is assumed: the shares below are near .1, .5, .9 (wider tails: mean and variance are estimates)."""
    rng = random.Random(2)
    shares = learned(rng.lognormvariate(3.0, 0.6) for _ in range(2000)).calibration()
    assert [shares[q] for q in QUANTILES] == pytest.approx(QUANTILES, abs=0.04)
    assert Estimate().calibration() == {}


def test_a_duration_of_nothing_breaks_nothing():
    """C1: an execution that ended at once."""
    assert learned([0.0, 1e-9]).mean_s > 0.0

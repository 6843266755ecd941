"""When the next snapshot is due (C4)."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gyre.env.snapshots.spacing import PRIOR_S, TURNS_MAX, Spacing, cost_share, interval_turns


def test_young_s_interval():
    """A snapshot of 2 s, a failure an hour: √(2·2·3600) = 120 s, so 12 turns of 10 s and one of 200 s."""
    assert interval_turns(2.0, 10.0, 1 / 3600) == 12
    assert interval_turns(2.0, 200.0, 1 / 3600) == 1


@given(st.floats(1e-3, 100), st.floats(0.01, 1000), st.floats(1e-7, 1e-1))
def test_no_other_number_of_turns_costs_less(snapshot_s, step_s, rate):
    chosen = interval_turns(snapshot_s, step_s, rate)
    least = min(cost_share(turns, snapshot_s, step_s, rate) for turns in range(1, TURNS_MAX + 1))
    assert cost_share(chosen, snapshot_s, step_s, rate) <= least * (1 + 1e-9)


@pytest.mark.parametrize("rate", [1 / 600, 1 / 3600, 1 / 86_400])
def test_it_is_near_the_exact_optimum(rate):
    """Daly 2006, equation 13 without restarts: an interval τ with its snapshot takes (exp(λ(τ + c)) - 1) / λ; Young's τ costs 1 % more at most."""

    def exact(turns: int) -> float:
        return math.expm1(rate * (turns * 5.0 + 1.5)) / (rate * turns * 5.0)

    assert exact(interval_turns(1.5, 5.0, rate)) <= 1.01 * min(exact(turns) for turns in range(1, TURNS_MAX))


def test_before_anything_is_measured_each_turn_has_one():
    assert Spacing().is_due(1)
    spacing = Spacing()
    spacing.took(2.0)
    assert spacing.interval_turns() == 1


def test_costs_are_measured_and_failures_bring_snapshots_closer():
    """Means of 2 s and 10 s: after an hour of 360 turns the rate is one failure in 7200 s, √(4·7200) = 169.7 s; with three failures four, 84.9 s."""
    spacing = Spacing()
    for seconds in (1.0, 3.0):
        spacing.took(seconds)
    for _ in range(360):
        spacing.stepped(10.0)
    assert spacing.watched_s == PRIOR_S and spacing.interval_turns() == 17
    for _ in range(3):
        spacing.failed()
    assert spacing.interval_turns() == 8


def test_a_running_mean_follows_a_task_that_gets_slower():
    """After 1000 turns of 1 s, 400 of 9 s: a mean that weighs the last 200 is within e⁻² of the new cost."""
    spacing = Spacing()
    for seconds in [1.0] * 1000 + [9.0] * 400:
        spacing.stepped(seconds)
    assert 9 - 8 * 0.14 < spacing.step_s.value < 9


@pytest.mark.parametrize(
    ("snapshot_s", "step_s", "rate"), [(0.0, 1.0, 1e-4), (1.0, 0.0, 1e-4), (1.0, 1.0, 0.0), (1e9, 1e-9, 1e-12)]
)
def test_odd_costs_give_a_number_of_turns(snapshot_s, step_s, rate):
    assert 1 <= interval_turns(snapshot_s, step_s, rate) <= TURNS_MAX

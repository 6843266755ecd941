"""Rewards (D4, D5, B4)."""

import pytest

from gyre.errors import InvalidInput
from gyre.records import Evaluation
from services.trajproc.core.scoring import composite, is_success, why_no_reward
from tests.unit.trajproc.builders import config, ended

SHARE = config(milestone_share=0.3)


def test_the_outcome_and_the_milestones_share_the_reward():
    """D5: share .3: outcome .5 pays .35; weights .4 and .2 sum to .6, twice the share, so a verified .4 pays .2."""
    evaluation = Evaluation(
        outcome=0.5,
        valid=True,
        milestones={"builds": True, "runs": False},
        milestone_weights={"builds": 0.4, "runs": 0.2},
    )
    reward = composite(evaluation, SHARE)
    assert reward.components == pytest.approx({"outcome": 0.35, "milestone.builds": 0.2, "milestone.runs": 0.0})
    assert reward.total == pytest.approx(0.55)


def test_milestone_weights_inside_the_share_are_paid_as_they_are():
    """D5: .1 of a share of .3 pays .1, not .3."""
    evaluation = Evaluation(outcome=1.0, valid=True, milestones={"m": True}, milestone_weights={"m": 0.1})
    assert composite(evaluation, SHARE).total == pytest.approx(0.8)


def test_a_placeholder_is_zero_and_marked():
    """B4: nothing to evaluate at all is reward 0, marked so."""
    reward = composite(Evaluation(outcome=0.0, valid=True, placeholder=True), SHARE)
    assert reward.total == 0.0 and reward.components["placeholder"] == 1.0
    assert not is_success(Evaluation(outcome=1.0, valid=True, placeholder=True), SHARE)


def test_errors_and_failed_evaluations_are_no_rewards():
    """NeMo-RL#3470, B4: each has its drop reason; a timed-out execution that was evaluated has a reward."""
    assert why_no_reward(ended("g000000", 0, 0.0, ending="failed")) == "environment_failed"
    assert why_no_reward(ended("g000000", 0, 1.0, ending="voided")) == "voided"
    assert why_no_reward(ended("g000000", 0, None)) == "evaluation_failed"
    assert why_no_reward(ended("g000000", 0, 1.0, valid=False)) == "evaluation_failed"
    assert why_no_reward(ended("g000000", 0, float("nan"))) == "evaluation_failed"
    assert why_no_reward(ended("g000000", 0, 0.2, ending="timed_out")) == ""
    with pytest.raises(InvalidInput):
        composite(Evaluation(outcome=1.0, valid=False), SHARE)

"""Precedence of the composite reward (D4, D5, B4): a table, each row with the reason for its number."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gyre.config import EvaluatorConfig, TrajprocConfig
from gyre.config.evaluators import lower_share
from gyre.errors import InvalidInput
from gyre.records import Evaluation, RewardScored
from services.trajproc.core.scoring import composite, failed_required, is_success, missing_in_group, open_questions
from services.trajproc.core.scoring.questions import values_of
from tests.unit.trajproc.builders import ended


def evaluator(name: str, kind: str, **settings) -> EvaluatorConfig:
    return EvaluatorConfig(name=name, kind=kind, url="http://127.0.0.1:1/x", **settings)


GUARD = evaluator("safe", "guard")
MILD = evaluator("mild", "guard", guard_value=0.1, fires_below=0.3)
RULE = evaluator("style", "rule", weight=0.25)
LEARNED = evaluator("taste", "learned", weight=0.4)
DENSE = evaluator("steps", "dense", weight=0.5)
ALL = [GUARD, MILD, RULE, LEARNED, DENSE]

TABLE = [
    # evaluators, outcome, milestone verified, scores, total, components that tell why
    ("outcome alone pays 1 − s = .7", [], 1.0, False, {}, 0.7, {"outcome": 0.7}),
    ("a verified milestone pays its weight, inside s = .3", [], 1.0, True, {}, 0.9, {"milestone.built": 0.2}),
    ("a rule of weight .25 leaves the environment .75: .75·.7 + .25·.4", [RULE], 1.0, False, {"style": 0.4}, 0.625,
     {"outcome": 0.525, "rule.style": 0.1}),
    ("learned fills the room: 0 + (1 − 0)·.4·.5", [LEARNED], 0.0, False, {"taste": 0.5}, 0.2, {"learned.taste": 0.2}),
    ("of what rules left: .7 + .3·.4·.5", [LEARNED], 1.0, False, {"taste": 0.5}, 0.76, {"learned.taste": 0.06}),
    ("a failure that the model adores stays below a success that it hates: .2 + .8·.4 = .52 < .7", [LEARNED], 0.0, True,
     {"taste": 1.0}, 0.52, {"milestone.built": 0.2, "learned.taste": 0.32}),
    ("a success that it hates", [LEARNED], 1.0, False, {"taste": 0.0}, 0.7, {"learned.taste": 0.0}),
    ("dense is last: .4·.5 = .2 by the model, (1 − .2)·.5·.5 = .2 by shaping", [LEARNED, DENSE], 0.0, False,
     {"taste": 0.5, "steps": 0.5}, 0.4, {"learned.taste": 0.2, "dense.steps": 0.2}),
    ("a guard that is content says nothing", [GUARD, LEARNED], 1.0, False, {"safe": 0.5, "taste": 0.0}, 0.7, {"outcome": 0.7}),
    ("a guard that fires decides alone, over a verified success", ALL, 1.0, True,
     {"safe": 0.49, "mild": 1.0, "style": 1.0, "taste": 1.0, "steps": 1.0}, 0.0, {"guard.safe": 0.0, "outcome": 0.0, "learned.taste": 0.0}),
    ("its value is what the configuration says", [MILD], 1.0, False, {"mild": 0.2}, 0.1, {"guard.mild": 0.1, "outcome": 0.0}),
    ("of two that fire the lower value decides", [MILD, GUARD], 1.0, False, {"mild": 0.0, "safe": 0.0}, 0.0, {"guard.safe": 0.0}),
    ("one without an answer is left out, what it could pay is the others'", [RULE, LEARNED], 1.0, False, {"taste": 0.5}, 0.76,
     {"outcome": 0.7, "learned.taste": 0.06}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("reason", "evaluators", "outcome", "built", "values", "total", "parts"),
    TABLE,
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_precedence(reason, evaluators, outcome, built, values, total, parts):
    """D4: guard over rules over learned over dense. s = .3, one milestone of weight .2."""
    evaluation = Evaluation(outcome=outcome, valid=True, milestones={"built": built}, milestone_weights={"built": 0.2})
    reward = composite(evaluation, TrajprocConfig(), evaluators, values)
    assert reward.total == pytest.approx(total, abs=1e-12), reason
    assert {name: reward.components[name] for name in parts} == pytest.approx(parts), reason
    assert sum(reward.components.values()) == pytest.approx(reward.total)


def test_a_firing_guard_is_named_and_takes_the_success_away():
    """D4: a success that broke a guard is none for the failure quota either (C10)."""
    evaluation = Evaluation(outcome=1.0, valid=True)
    assert composite(evaluation, TrajprocConfig(), [GUARD], {"safe": 0.1}).guard == "safe"
    assert not is_success(evaluation, TrajprocConfig(), [GUARD], {"safe": 0.1})
    assert is_success(evaluation, TrajprocConfig(), [GUARD, LEARNED], {"safe": 0.5, "taste": 0.0})


def test_a_learned_score_never_moves_what_rules_verified_wholly():
    """D4: R = .7 + .3 = 1 leaves no room, not even one of rounding: two members whose scores differ have equal rewards."""
    evaluation = Evaluation(
        outcome=1.0, valid=True, milestones={"a": True, "b": True}, milestone_weights={"a": 0.1, "b": 0.2}
    )
    totals = {composite(evaluation, TrajprocConfig(), [LEARNED], {"taste": score}).total for score in (0.0, 0.3, 1.0)}
    assert totals == {1.0}


@pytest.mark.parametrize("milestone", ["unknown", "built"])
def test_a_milestone_pays_once_and_only_when_declared_and_verified(milestone):
    """D5: a name without a declared weight pays nothing; the same one twice cannot be said."""
    evaluation = Evaluation(outcome=0.0, valid=True, milestones={milestone: True}, milestone_weights={"built": 0.2})
    assert composite(evaluation, TrajprocConfig()).total == (0.2 if milestone == "built" else 0.0)


def test_gated_milestones_pay_beside_a_success_only():
    """D5: for the task type that says so; elsewhere the .2 is paid by itself."""
    config = TrajprocConfig(milestones_gated=["proof"])
    failure, success = (
        Evaluation(outcome=outcome, valid=True, milestones={"built": True}, milestone_weights={"built": 0.2})
        for outcome in (0.5, 1.0)
    )
    assert composite(failure, config, task_type="proof").components["milestone.built"] == 0.0
    assert composite(failure, config, task_type="proof").milestone_weights == {}
    assert composite(failure, config, task_type="repair").components["milestone.built"] == 0.2
    assert composite(success, config, task_type="proof").total == pytest.approx(0.9)


def test_a_placeholder_pays_nothing_whoever_says_what():
    """B4: nothing to evaluate at all is reward 0, marked; nobody is asked about it."""
    evaluation = Evaluation(outcome=0.0, valid=True, placeholder=True)
    reward = composite(evaluation, TrajprocConfig(), [LEARNED], {"taste": 1.0})
    assert (reward.total, reward.components["placeholder"]) == (0.0, 1.0)
    assert open_questions(ended("g000001", 0, 0.0, placeholder=True), {}, [LEARNED]) == []


def test_a_rule_can_stand_in_for_an_environment_that_verifies_nothing():
    """D4: outcome_counts false: its 1.0 pays nothing; the rule's full score is the success."""
    config = TrajprocConfig(outcome_counts=False, milestone_share=0.0)
    rule = evaluator("tests", "rule", weight=1.0)
    evaluation = Evaluation(outcome=1.0, valid=True)
    assert composite(evaluation, config, [rule], {"tests": 0.5}).total == 0.5
    assert not is_success(evaluation, config, [rule], {"tests": 0.5})
    assert is_success(Evaluation(outcome=0.0, valid=True), config, [rule], {"tests": 1.0})


def test_an_evaluation_that_failed_has_no_reward():
    """B4, NeMo-RL#3470: never a zero."""
    with pytest.raises(InvalidInput):
        composite(Evaluation(outcome=1.0, valid=False), TrajprocConfig())


SCORE = st.floats(0, 1)


@given(
    SCORE,
    st.dictionaries(st.sampled_from("abc"), st.booleans()),
    st.dictionaries(st.sampled_from("abc"), st.floats()),
    st.fixed_dictionaries({}, optional={one.name: SCORE for one in ALL}),
    SCORE,
)
def test_totals_are_bounded_and_lower_tiers_stay_in_their_room(outcome, milestones, weights, values, share):
    """D4: R ≤ total ≤ R + (1 − R)·q whatever anybody says, also with weights that are infinite or no number."""
    evaluation = Evaluation(outcome=outcome, valid=True, milestones=milestones, milestone_weights=weights)
    config = TrajprocConfig(milestone_share=share)
    values = {name: value for name, value in values.items() if name not in ("safe", "mild")}
    rules = composite(evaluation, config, [RULE], values)
    reward = composite(evaluation, config, ALL, values)
    room = 1.0 - rules.total
    assert math.isfinite(reward.total) and 0.0 <= reward.total <= 1.0
    assert rules.total - 1e-9 <= reward.total <= rules.total + room * lower_share(ALL) + 1e-9


def scored(name: str, value: float | None, **more) -> RewardScored:
    return RewardScored(
        sample_id="g000001-e0-a1", execution_id="g000001-e0", group_id="g000001", attempt=1, task_type="repair", evaluator=name,
        kind="learned", value=value, valid=value is not None, partial=False, tries=1, took_s=0.0, at_s=0.0, **more,
    )  # fmt: skip


def test_questions_are_open_until_a_word_is_on_record_and_never_asked_of_what_has_no_reward():
    """B4: a failed evaluation is a word as well; errors are no rewards, so nobody is asked."""
    both = [LEARNED, DENSE]
    assert [one.evaluator for one in open_questions(ended("g000001", 0), {}, both)] == ["taste", "steps"]
    heard = {"taste": scored("taste", None)}
    assert [one.evaluator for one in open_questions(ended("g000001", 0, ending="timed_out"), heard, both)] == ["steps"]
    assert open_questions(ended("g000001", 0, ending="failed"), {}, both) == []
    assert open_questions(ended("g000001", 0, valid=False), {}, both) == []


def test_a_required_failure_says_why_and_an_optional_one_is_left_out_for_the_whole_group():
    """B4: of the scores .8 and none the .8 must not count either: against it the other would look like a zero. Guards stand alone."""
    optional = [evaluator("taste", "learned", required=False), evaluator("safe", "guard", required=False)]
    first = {"taste": scored("taste", 0.8), "safe": scored("safe", 0.0)}
    second = {"taste": scored("taste", None, detail="status 500"), "safe": scored("safe", None)}
    assert failed_required(second, [LEARNED]) == "evaluator taste: status 500"
    assert failed_required(second, optional) == ""
    left_out = missing_in_group([first, second], optional)
    assert left_out == {"taste"}
    assert (values_of(first, left_out), values_of(second, left_out)) == ({"safe": 0.0}, {})

"""From records to credit: what the processor makes of a judged group (B7, D3, D5)."""

import msgspec
import pytest

from gyre import records as r
from services.trajproc.core.scoring.reward import paid_weights
from tests.unit.trajproc.builders import Live, call, config, dispatched, ended, execution, leased, opened, started

WEIGHTS = {"opened": 0.1, "passes": 0.1}
NAME = "g000000"


def with_milestones(facts: list, turns: dict[str, int]) -> list:
    """The execution's facts, its ending saying when milestones were verified."""
    *others, ending = facts
    evaluation = msgspec.structs.replace(ending.evaluation, milestone_weights=WEIGHTS, milestone_turns=turns)
    return [*others, msgspec.structs.replace(ending, evaluation=evaluation)]


def pair_of_failures() -> list:
    """Two executions of four calls without success; the first opened the file with its second call."""
    return [
        started(), opened(0), dispatched(NAME),
        *with_milestones(execution(NAME, 0, 0.0, turns=4), {"opened": 2}),
        *with_milestones(execution(NAME, 1, 0.0, turns=4), {}),
    ]  # fmt: skip


def test_a_group_without_difference_learns_from_its_segments():
    """D3: outcomes [0, 0] are no gradient by execution; by fusion the segment that opened the file is better than what followed."""
    settings = {"turns_per_step": 8, "milestone_share": 0.2, "critic": "zero", "lambda_scale": 0.5}
    plain = Live(config(**settings)).see(*pair_of_failures())
    assert set(plain.drops().values()) == {"no_gradient"} and not plain.queue
    fused = Live(config(**settings, credit="fusion")).see(*pair_of_failures())
    assert fused.drops() == {} and len(fused.batch().sample_ids) == 2
    assert fused.queue and not fused.batch().no_gradient


def test_rows_carry_the_advantage_of_each_call_to_its_tokens():
    """D3, B7: the first execution's calls 0 and 1 sampled 20…23, calls 2 and 3 24…27; credited .1 and −.1. The other execution
    has advantage 0 throughout: it is in the batch all the same, and in its divisor."""
    settings = config(turns_per_step=8, milestone_share=0.2, critic="zero", lambda_scale=0.5, credit="fusion")
    live = Live(settings).see(*pair_of_failures())
    rows = {row.sample_id: row for micro in live.queue for row in micro.rows}
    row = rows[f"{NAME}-e0-a1"]
    targets = r.array(row.tokens, "int32")[row.targets].tolist()
    found = [value for value in r.array(row.advantages, "float32").tolist() if value]
    assert dict(zip(targets, found, strict=True)) == pytest.approx({20 + i: 0.1 if i < 4 else -0.1 for i in range(8)})
    assert not r.array(rows[f"{NAME}-e1-a1"].advantages, "float32").any()
    (ready, _) = live.all(r.SampleReady)
    assert (ready.segments, ready.kappa, ready.segment_starts) == (2, 0.0, [0, 2])
    assert ready.segment_advantages == pytest.approx([0.1, -0.1]) and ready.advantage == 0.0


def test_the_same_facts_give_the_same_credit_whatever_was_said_between():
    """E: a processor that folds the whole stream again, its own words included, has the same critic and says nothing new."""
    settings = config(turns_per_step=16, milestone_share=0.2, credit="segment")
    facts = pair_of_failures()
    live = Live(settings).see(*facts)
    again = Live(settings, past=live.stream)
    assert again.said == [] and again.processor.critic._means == live.processor.critic._means != {}


def test_executions_that_policy_masks_are_in_the_baseline_unless_it_is_said_that_they_are_not():
    """D3: rewards [1, 0, 0], the last one's only output never reached the harness. With it the mean is 1/3, without it 1/2."""
    lost = [leased(NAME, 2), call([1], [2], execution=f"{NAME}-e2", delivered=False), ended(NAME, 2, 0.0)]
    facts = [started(), dispatched(NAME, 3), *execution(NAME, 0, 1.0), *execution(NAME, 1, 0.0), *lost]
    advantages = {}
    for masked in (True, False):
        live = Live(config(baseline_masked=masked)).see(*facts)
        advantages[masked] = [verdict.advantage for verdict in live.processor.groups[NAME].verdicts]
    assert advantages[True] == pytest.approx([2 / 3, -1 / 3, -1 / 3])
    assert advantages[False] == [0.5, -0.5, 0.0]


def test_truncated_executions_are_masked_where_none_is_trained():
    """D3, C5: no truncated execution is trained at a share of 0, so the configuration may keep the third's 0 out of the baseline."""
    facts = [*execution(NAME, 0, 1.0), *execution(NAME, 1, 0.0), *execution(NAME, 2, 0.0, ending="timed_out")]
    live = Live(config(baseline_masked=False, truncated_share_max=0.0)).see(started(), dispatched(NAME, 3), *facts)
    assert [verdict.advantage for verdict in live.processor.groups[NAME].verdicts] == [0.5, -0.5, 0.0]


def test_a_turn_whose_record_was_set_aside_is_still_a_turn():
    """D3, B1: of calls 0…3 call 1 has a version that was never published, and calls 2 and 3 hang from it. The file was opened with turn 2,
    which is call 1: the first segment ends after it, and call 0 alone of it is left to be trained."""
    name = f"{NAME}-e0"
    calls = [
        call([1], [2], execution=name),
        call([3], [4], index=1, parent=0, cut=2, execution=name, version=77),
        call([9], [5], index=2, execution=name),
        call([9, 9], [6], index=3, execution=name),
    ]
    facts = with_milestones([leased(NAME, 0), *calls, ended(NAME, 0, 0.0, turns=4)], {"opened": 2})
    settings = config(credit="segment", critic="zero", lambda_scale=0.5, milestone_share=0.2)
    live = Live(settings).see(started(), dispatched(NAME, 1), *facts)
    (verdict,) = live.processor.groups[NAME].verdicts
    assert verdict.credit.starts == (0, 2)
    assert verdict.credit.of([0, 2, 3]) == pytest.approx([0.1, -0.1, -0.1])


def test_an_advantage_that_only_untrained_calls_have_is_no_gradient():
    """C10: the file is opened by a side agent's two calls (.1); what follows has −.1 + .125·.8 = 0. Were the first two main calls, there
    would be a gradient."""
    name = f"{NAME}-e0"
    settings = config(credit="segment", critic="zero", lambda_scale=0.5, milestone_share=0.2)
    for role, has_gradient in (("side", False), ("main", True)):
        calls = [call([1], [2 + i], index=i, execution=name, role=role if i < 2 else "main") for i in range(4)]
        facts = with_milestones([leased(NAME, 0), *calls, ended(NAME, 0, 0.125, turns=4)], {"opened": 2})
        live = Live(settings).see(started(), dispatched(NAME, 1), *facts)
        (verdict,) = live.processor.groups[NAME].verdicts
        assert verdict.credit.advantages == pytest.approx((0.1, 0.0)) and verdict.has_gradient == has_gradient


def test_milestones_are_paid_as_the_reward_pays_them():
    """D5: weights .4 and .2 sum to .6, twice the share of .3; what is no number weighs nothing."""
    evaluation = r.Evaluation(outcome=0.0, valid=True, milestone_weights={"a": 0.4, "b": 0.2, "c": float("nan")})
    assert paid_weights(evaluation, 0.3) == pytest.approx({"a": 0.2, "b": 0.1})
    assert paid_weights(r.Evaluation(outcome=0.0, valid=True), 0.3) == {}


def test_a_group_of_failed_executions_has_no_credit():
    """B4: nothing with a reward, nothing to compare, nothing for the critic to learn."""
    failed = [*execution(NAME, 0, None, ending="failed"), *execution(NAME, 1, None)]
    live = Live(config(credit="fusion")).see(started(), dispatched(NAME), *failed)
    assert set(live.drops().values()) == {"environment_failed", "evaluation_failed"}
    assert live.processor.critic._means == {}


def test_a_reply_that_was_lost_and_is_continued_all_the_same_is_trained_and_credited():
    """B6: call 0's reply is marked as lost, yet call 1 continues it: it did reach. It has the execution's only two sampled tokens."""
    lost, heard = call([1, 2, 3], [4, 5], delivered=False), call([6], [], index=1, parent=0, cut=5)
    facts = [dispatched("g000000", 2), lost, heard, ended("g000000", 0, 1.0, turns=1, calls=2)]
    live = Live().see(opened(0), *facts, *execution("g000000", 1, 0.0))
    assert live.drops() == {} and [sample.targets_chosen for sample in live.all(r.SampleReady)] == [2, 2]

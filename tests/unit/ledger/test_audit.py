"""Each criterion passes on a consistent run and fails when exactly its promise is broken (C14)."""

import pytest

from gyre import records as r
from services.ledger.queries import audit
from services.ledger.storage import settling
from tests.unit.ledger.ledger_history import RUN, call, changed, config, dropped, history, step


def judged(database, settings=None):
    with database.read() as connection:
        return {criterion.name: criterion for criterion in audit(connection, RUN, settings or config())}


def test_a_consistent_run_passes_every_criterion(whole):
    """C14"""
    found = judged(whole)
    assert {name: one.figure for name, one in found.items() if not one.passed} == {}
    assert list(found)[:5] == ["traceable", "fingerprinted", "turns_complete", "truncated_share", "age_cap"]


def test_an_empty_ledger_does_not_pass(books_of):
    """C14: nothing was shown, so nothing is granted."""
    found = judged(books_of([]))
    assert [name for name, one in found.items() if not one.passed] == ["not_empty"]


def test_every_query_can_be_run_by_hand_and_shows_nothing_wrong(whole):
    """C14: no parameter is left in the text that is shown."""
    with whole.read() as connection:
        for criterion in audit(connection, RUN, config()):
            connection.exec_driver_sql(criterion.query).fetchall()


def test_running_totals_that_are_not_their_facts_are_found(whole):
    """C12: nothing that is told can do this, only a defect or a hand in the database."""
    with whole.writing.begin() as connection:
        connection.exec_driver_sql("UPDATE costs SET turns = turns + 1 WHERE execution_id = 'g000000-e0'")
    found = judged(whole)
    assert [name for name, one in found.items() if not one.passed] == ["balance_costs"]
    assert "execution_id=g000000-e0" in found["balance_costs"].figure


def test_settled_bills_that_are_not_their_running_totals_are_found(whole):
    """C12: as above, of lines that are already made."""
    settling.settle_all(whole.writing, keep=0)
    assert all(one.passed for one in judged(whole).values())
    with whole.writing.begin() as connection:
        connection.exec_driver_sql("DELETE FROM bill_lines WHERE group_id = 'g000001' AND attempt = 2")
    found = judged(whole)
    assert [name for name, one in found.items() if not one.passed] == ["balance_bills"]
    assert "group_id=g000001" in found["balance_bills"].figure


def trained(sample):
    return lambda fact: sample in getattr(fact, "sample_ids", [])


A, LATE = "g000000-e0-a1", "g000001-e0-a1"
BREAKS = {
    "a trained sample without an image": (
        lambda f: changed(f, r.ExecutionStarted, lambda x: x.execution_id == "g000000-e0", image_digest=""), ["traceable"]),
    "a dropped sample of which no attempt is known": (
        lambda f: [*f, dropped(9, 0, "wait")], ["traceable", "balance_samples"]),
    "no fingerprint": (lambda f: changed(f, r.RunStarted, lambda x: True, fingerprint=""), ["fingerprinted"]),
    "a batch closed by turns that are too few": (
        lambda f: changed(f, r.BatchClosed, lambda x: x.step == 0, turns=3), ["turns_complete"]),
    "a batch that waited although it had its turns": (
        lambda f: changed(f, r.BatchClosed, lambda x: x.step == 0, cause="wait"), ["turns_complete"]),
    "a batch closed by counting tasks": (
        lambda f: changed(f, r.BatchClosed, lambda x: x.step == 0, cause="tasks"), ["turns_complete"]),
    "a group's turns that the batch does not count": (
        lambda f: changed(f, r.BatchExtended, lambda x: x.step == 0, turns=9), ["turns_complete"]),
    "too many truncated": (
        lambda f: changed(f, r.BatchClosed, lambda x: x.step == 1, truncated_share=0.51), ["truncated_share"]),
    "a trained sample over the cap": (  # trained at step 1, dispatched at −8: nine steps, the cap is eight
        lambda f: changed(f, r.SampleReady, lambda x: x.sample_id == LATE, policy_version=-8), ["age_cap"]),
    "a drop by age that was not too old": (
        lambda f: changed(f, r.SampleDropped, lambda x: x.reason == "age", age_steps=8), ["age_cap"]),
    "an assembler that says it kept too many failures": (
        lambda f: changed(f, r.BatchClosed, lambda x: x.step == 0, failed_share={"repair": 0.75}), ["failure_quota"]),
    "failures that the assembler does not say": (  # both of the batch failed: share 1 over the quota of .5
        lambda f: changed(f, r.SampleReady, lambda x: x.group_id == "g000000", success=False), ["failure_quota"]),
    "two batches without gradient in a row and no alarm": (
        lambda f: changed(f, r.BatchClosed, lambda x: x.step == 1, no_gradient=True, micro_ids=[]), ["no_gradient_alarm"]),
    "a no-gradient batch that was not said to be one": (
        lambda f: changed(f, r.BatchClosed, lambda x: x.step == 2, no_gradient=False), ["no_gradient_alarm"]),
    "a replay and a resample in one batch": (
        lambda f: changed(
            changed(f, r.SampleReady, lambda x: x.sample_id == A, origin="replay"),
            r.SampleReady, lambda x: x.sample_id == "g000000-e1-a1", origin="resample"), ["origins_apart"]),
    "a call record too many": (lambda f: [*f, call(0, 0, 7)], ["balance_turns"]),
    "a turn too many": (
        lambda f: changed(f, r.ExecutionEnded, lambda x: x.execution_id == "g000000-e0", turns=3), ["balance_turns"]),
    "an execution trained and dropped": (lambda f: [*f, dropped(0, 1, "wait")], ["balance_samples"]),
    "an execution that its step lost": (  # in the batch and the step is done, but not in its gradient
        lambda f: changed(f, r.StepUpdated, trained(A), sample_ids=["g000000-e1-a1"]), ["balance_samples"]),
    "a sample trained in two steps": (
        lambda f: changed(f, r.StepUpdated, lambda x: x.step == 1, sample_ids=[A, LATE, "g000001-e1-a2"]), ["trained_once"]),
    "two attempts of one execution trained": (
        lambda f: [*changed(f, r.StepUpdated, lambda x: x.step == 1, sample_ids=[LATE, "g000001-e1-a2", "g000000-e0-a2"]),
                   *changed([x for x in f if isinstance(x, r.SampleReady)], r.SampleReady, lambda x: x.sample_id == A,
                            sample_id="g000000-e0-a2", attempt=2)], ["traceable", "trained_once"]),
    "occupied seconds that no instance lived": (
        lambda f: changed(f, r.ExecutionEnded, lambda x: x.execution_id == "g000000-e0", occupancy_s=9.0), ["balance_occupancy"]),
}  # fmt: skip


@pytest.mark.parametrize("what", BREAKS)
def test_exactly_the_broken_promise_fails(books_of, what):
    """C14: the quota is .5 here, what the consistent run keeps, so that one failure more is over it."""
    breaking, expected = BREAKS[what]
    found = judged(books_of(breaking(history())), config(failed_share_by_type={"repair": 0.5}))
    assert sorted(name for name, one in found.items() if not one.passed) == sorted(expected)
    assert all("broken" in found[name].figure or name == "no_gradient_alarm" for name in expected)


REFUSED = "g000001-e0-a1"
"""A success of step 1 that could not be trained; its fellow, a failure, was."""


def refusing(facts: list[r.Fact], *more: r.Fact) -> list[r.Fact]:
    told = {"sample_ids": ["g000001-e1-a2"], "set_aside": {REFUSED: "the loss is not finite\x00"}}
    return [*changed(facts, r.StepUpdated, lambda x: x.step == 1, **told), *more]


@pytest.mark.parametrize("more", [[], [dropped(1, 0, "untrainable", step=1)]], ids=["before its drop", "after"])
def test_a_sample_that_the_trainer_set_aside_is_lost_by_nobody_and_spoils_no_quota(books_of, more):
    """C10, C14: its drop may be a while on its way, and the batch that kept it was within its quota: one failure of two, not one of one."""
    found = judged(books_of(refusing(history(), *more)), config(failed_share_by_type={"repair": 0.5}))
    assert [name for name, one in found.items() if not one.passed] == []
    assert ("in flight 2" in found["balance_samples"].figure) == bool(more)


def test_a_sample_that_another_step_refused_is_lost_all_the_same(books_of):
    """A replay of the elite store that could not be trained again says nothing of the step that had it first."""
    facts = changed(history(), r.StepUpdated, lambda x: x.step == 1, sample_ids=["g000001-e1-a2"])
    facts = changed(facts, r.StepUpdated, lambda x: x.step == 2, set_aside={REFUSED: "no memory"})
    found = judged(books_of(facts))
    assert not found["balance_samples"].passed and "g000001-e0" in found["balance_samples"].figure


def test_a_replay_beside_a_batch_without_gradient_of_its_own_breaks_nothing(books_of):
    """D9, C10: batch 2 of the run has no gradient; the elite store's one micro-step beside it is not the batch's."""
    facts = changed(history(), r.BatchClosed, lambda x: x.step == 2, micro_ids=["s000002-elite-0-m0"], elites=[A])
    assert all(one.passed for one in judged(books_of(facts)).values())


def test_a_call_that_the_wall_clock_cut_off_is_on_record_and_no_turn(books_of):
    """C6: an ending counts it among its calls and not among its turns."""
    cut = changed([call(0, 0, 7)], r.CallRecorded, lambda x: True, finish_reason="cancelled")
    facts = changed(history(), r.ExecutionEnded, lambda x: x.execution_id == "g000000-e0", calls=3)
    assert judged(books_of([*facts, *cut]))["balance_turns"].passed
    assert not judged(books_of([*history(), *cut]))["balance_turns"].passed


def test_an_alarm_makes_no_gradient_batches_watched(books_of):
    """C10"""
    alarm = r.AlarmRaised(kind="no_gradient", message="2 in a row", service="trajproc", at_s=50.0)
    facts = changed(history(), r.BatchClosed, lambda x: x.step == 1, no_gradient=True, micro_ids=[])
    assert judged(books_of([*facts, alarm]))["no_gradient_alarm"].passed


def test_a_batch_of_few_long_tasks_is_as_complete_as_one_of_many_short_ones(books_of):
    """C5: three executions of two turns reach six ≥ 4; one of four turns would too. The number of groups plays no part."""
    facts = [*history(), *step(3, [(4, 0, 1), (4, 1, 1), (4, 2, 1)])]
    assert judged(books_of(facts))["turns_complete"].passed

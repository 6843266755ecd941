"""Groups into batches: order, age, waiting, quota, closing, promises (C5, C8, C10)."""

import pytest

from gyre import records as r
from gyre.errors import InvariantBroken
from services.trajproc.core.batch import check_promises, kept_max
from services.trajproc.core.fold import STARVED_S
from tests.unit.trajproc.builders import (
    Live,
    config,
    dispatched,
    ended,
    execution,
    group,
    names,
    opened,
    started,
    submitted,
    waterlevel,
)

A, B, C = "g000001", "g000002", "g000003"


def test_without_streaming_micro_steps_are_sent_when_the_batch_is_whole():
    """A9: groups are taken as they get ready, and nothing can be trained before the batch closes."""
    live = Live(config(turns_per_step=4), is_streaming=False).see(opened(0), *group(A, [1.0, 0.0]))
    assert [fact.group_id for fact in live.all(r.BatchExtended)] == [A] and live.queue == []
    live.see(*group(B, [1.0, 0.0]))
    kinds = [type(record).__name__ for record in live.said[-4:]]
    assert kinds == ["BatchExtended", "MicroStep", "MicroStep", "BatchClosed"]
    assert [micro.micro_id for micro in live.queue] == live.batch().micro_ids
    assert live.processor.groups == {} and live.processor.batch is None


def test_without_an_open_step_groups_wait_and_the_oldest_dispatch_version_goes_first():
    """C8: v_d 1 before 2, whichever was ready first; each batch takes as many as its turns need (2)."""
    live = Live().see(*group(B, [1.0, 0.0], version=2), *group(A, [1.0, 0.0], version=1))
    assert not live.all(r.BatchExtended)
    live.see(opened(2))
    assert live.batch().groups == [A]
    assert (live.batch().staleness_mean, live.batch().staleness_max) == (1.0, 1)
    live.see(opened(3))
    assert live.batch().groups == [B]


def test_batches_without_gradient_are_counted_and_alarmed_at_the_second_in_a_row():
    """C10: no_gradient_alarm 2: batches 0 and 1 have none, so one alarm, with the batch's time as its name."""
    live = Live(config(advantage="zero")).see(opened(0), *group(A, [1.0, 0.0]))
    assert live.batch().no_gradient and not live.all(r.AlarmRaised)
    live.see(opened(1), *group(B, [1.0, 0.0], version=1))
    (alarm,) = live.all(r.AlarmRaised)
    assert (alarm.kind, alarm.values["batches"], alarm.at_s) == ("no_gradient", 2.0, live.batch().at_s)
    assert live.processor.no_gradient_batches == 2


def test_what_exceeds_the_age_cap_is_dropped_and_what_stands_at_the_cap_is_taken():
    """C8: cap 2, step 5: v_d 2 has age 3 and goes; v_d 3 has age 2 and is trained."""
    live = Live(config(age_steps_max=2)).see(
        *group(A, [1.0, 0.0], version=2), *group(B, [1.0, 0.0], version=3), opened(5)
    )
    assert live.drops() == dict.fromkeys(names(A, 2), "age")
    assert {(drop.step, drop.age_steps) for drop in live.all(r.SampleDropped)} == {(5, 3)}
    assert live.batch().groups == [B] and live.batch().staleness_max == 2
    assert A not in live.processor.groups


@pytest.mark.parametrize("dies_after", [None, 0, 1])
def test_a_group_of_which_nothing_can_be_trained_is_said_to_be_dropped_though_it_is_too_old(dies_after):
    """C9: cap 1, the batch of step 5 is open when the last of three members fails (v_d 0): in one fold the group is judged and found too old.
    Three drops with the members' own reason, also when the processor dies before or after the first of them."""
    facts = [opened(5), dispatched(A, 3, 0), *(ended(A, member, None, ending="failed", calls=0) for member in range(3))]
    whole = Live(config(age_steps_max=1)).see(*facts)
    assert whole.drops() == dict.fromkeys(names(A, 3), "environment_failed")
    assert not whole.processor.groups and not whole.processor.intents
    if dies_after is not None:
        again = Live(config(age_steps_max=1), past=[*facts, *whole.said[:dies_after]])
        assert again.drops() == dict.fromkeys(names(A, 3)[dies_after:], "environment_failed")


def test_a_batch_waits_for_a_group_at_its_last_step_rather_than_drop_it():
    """C8: `wait` before `drop`: A (v_d 0, cap 1) is unfinished at step 1; B fills the turns, the batch stays open for A."""
    live = Live(config(age_steps_max=1)).see(
        dispatched(A, 2, 0), *execution(A, 0, 1.0), *group(B, [1.0, 0.0], version=1)
    )
    live.see(opened(1))
    assert live.all(r.BatchExtended)[-1].group_id == B and not live.all(r.BatchClosed)
    live.see(*execution(A, 1, 0.0))
    assert live.batch().groups == [B, A] and live.batch().cause == "turns" and not live.drops()


def test_the_wait_for_a_last_step_is_bounded_by_the_wait_policy():
    """C5: begun at 10 s with wait_s 60: at 71 s the batch closes with its turns; A is too old at the next step."""
    live = Live(config(age_steps_max=1, wait_s=60)).see(
        dispatched(A, 2, 0), *group(B, [1.0, 0.0], version=1), opened(1)
    )
    live.tick(60.0)
    assert not live.all(r.BatchClosed)
    live.tick(71.0)
    assert live.batch().cause == "turns"
    live.see(opened(2), *execution(A, 0, 1.0), *execution(A, 1, 0.0))
    assert set(live.drops().values()) == {"age"}


def test_a_batch_that_has_begun_closes_when_its_wait_is_over():
    """C5: two of four turns are there; B is still running. What comes later goes into the next batch."""
    live = Live(config(turns_per_step=4, wait_s=60)).see(opened(0), dispatched(B, 2), *group(A, [1.0, 0.0]))
    live.tick(69.0)
    assert not live.all(r.BatchClosed)
    live.tick(70.5)
    assert (live.batch().cause, live.batch().turns, live.batch().turns_target) == ("wait", 2, 4)
    live.see(*execution(B, 0, 1.0), *execution(B, 1, 0.0), opened(1)).tick(10_000.0)
    assert live.batch().groups == [B]


def test_an_empty_batch_waits_for_what_runs_however_long():
    """C5: the wait begins with the batch's first group; an execution of hours must not be answered by an empty step."""
    live = Live(config(wait_s=60)).see(started(), opened(0)).tick(1e6)
    assert not live.said, "no group was ever submitted: early, not exhausted"
    live.see(submitted(A), dispatched(A, 2)).tick(1e6)
    assert not live.said


def test_a_batch_that_nothing_can_fill_any_more_closes_as_exhausted():
    """C5: run started, nothing queued, nothing running: closed at once with what is there; before RunStarted it waits."""
    live = Live(config(turns_per_step=100)).see(submitted(A), opened(0), *group(A, [1.0, 0.0]))
    assert not live.all(r.BatchClosed)
    live.see(started())
    assert (live.batch().cause, live.batch().groups) == ("exhausted", [A])


def test_a_queued_group_keeps_the_batch_open_until_the_boundary_has_nothing_more_to_give():
    """C5, A4: nothing is dispatched inside a burst: with all of this boundary's groups trained and C still queued, the batch closes
    after STARVED_S; groups queued for evaluation do not count."""
    live = Live(config(turns_per_step=100)).see(started(), submitted(A), submitted(C), submitted(B, "evaluation"))
    live.see(*group(A, [1.0, 0.0]), opened(0)).tick(10.0 + STARVED_S - 1)
    assert not live.all(r.BatchClosed)
    live.tick(10.0 + STARVED_S)
    assert live.batch().cause == "exhausted"
    live.see(opened(1, at_s=30.0)).tick(30.0 + 10 * STARVED_S)
    assert len(live.all(r.BatchClosed)) == 1, "the scheduler has not spoken of the boundary of burst 1 yet"
    live.see(waterlevel(1)).tick(30.0 + STARVED_S)
    assert live.batch().step == 1, "it has, and sends nothing"


def test_the_failure_quota_keeps_a_share_by_task_type_and_the_baseline_of_all():
    """C10: outcomes [1,0,0,0], share .5: one success allows one failed; baseline .25 of all four, so advantages .75 and −.25."""
    live = Live(config(failed_share_by_type={"repair": 0.5})).see(opened(0), *group(A, [1.0, 0.0, 0.0, 0.0]))
    assert live.drops() == dict.fromkeys(names(A, 4)[2:], "quota")
    assert [ready.advantage for ready in live.all(r.SampleReady)] == [0.75, -0.25, -0.25, -0.25]
    assert live.batch().sample_ids == names(A, 4)[:2] and live.batch().divisor == 2
    assert live.batch().failed_share == {"repair": 0.5}


def test_what_the_quota_drops_is_refilled_by_further_groups():
    """C10, C5: share .5, five turns wanted, groups of four with outcomes [1,0,0,0], one turn each. Each group keeps its success and one failed
    sample, so their dropped members' turns fill nothing: three groups are needed (2 + 2 + 2 turns), where without a quota two (4 + 4) would do."""
    stories = [group(name, [1.0, 0.0, 0.0, 0.0]) for name in (A, B, C)]
    live = Live(config(turns_per_step=5, failed_share_max=0.5)).see(opened(0), *stories[0], *stories[1])
    assert not live.all(r.BatchClosed)
    live.see(*stories[2])
    closed = live.batch()
    assert (closed.groups, closed.turns, closed.divisor, closed.cause) == ([A, B, C], 6, 6, "turns")
    assert closed.failed_share == {"repair": 0.5} and live.processor.dropped["quota"] == 6
    free = Live(config(turns_per_step=5)).see(opened(0), *stories[0], *stories[1])
    assert free.batch().groups == [A, B] and free.batch().turns == 8


def test_the_quota_of_one_task_type_leaves_the_others_alone():
    """C10: no failed sample of `repair` is kept, all of `survey` are: 1 + 2 turns from the two groups."""
    live = Live(config(turns_per_step=3, failed_share_by_type={"repair": 0.0})).see(opened(0), *group(A, [1.0, 0.0]))
    live.see(dispatched(B, 2, task_type="survey"), *execution(B, 0, 1.0), *execution(B, 1, 0.0))
    assert live.batch().failed_share == {"repair": 0.0, "survey": 0.5} and live.batch().turns == 3
    assert live.drops() == {f"{A}-e1-a1": "quota"}


def test_several_groups_at_their_last_step_are_all_waited_for_and_none_is_dropped():
    """C8: `wait` before `drop`: A and B (v_d 0) stand at the cap of step 1 with a member missing each; C fills the turns. The batch stays open
    for both, and takes them though it is full."""
    live = Live(config(age_steps_max=1)).see(*[dispatched(name, 2, 0) for name in (A, B)])
    live.see(*execution(A, 0, 1.0), *execution(B, 0, 0.0), opened(1), *group(C, [1.0, 0.0], version=1))
    live.see(*execution(B, 1, 1.0))
    assert not live.all(r.BatchClosed), "A is still missing"
    live.see(*execution(A, 1, 0.0))
    closed = live.batch()
    assert (closed.groups, closed.staleness_max, closed.cause) == ([C, B, A], 1, "turns") and not live.drops()


def test_the_quota_by_hand():
    """C10: (failed + k) ≤ share·(kept + successes + k)."""
    assert kept_max(0, 0, 4, 0.2) == 1, "1 of 5"
    assert kept_max(0, 0, 1, 0.5) == 1, "1 of 2"
    assert kept_max(5, 2, 5, 0.5) == 6, "8 of 16"
    assert kept_max(0, 0, 0, 0.5) == 0
    assert kept_max(0, 0, 3, 0.0) == 0
    assert kept_max(0, 0, 0, 1.0) is None


def test_an_empty_batch_says_so_and_can_be_divided_by():
    """C5: no executions: no gradient, divisor 1, staleness 0."""
    live = Live().see(started(), opened(0), dispatched(A, 1), ended(A, 0, None, ending="failed"))
    assert live.batch().groups == [A], "a group of which nothing can be trained is consumed too"
    closed = live.see(opened(1)).batch()
    assert (closed.groups, closed.no_gradient, closed.divisor, closed.sample_ids, closed.staleness_mean) == (
        [],
        True,
        1,
        [],
        0.0,
    )


def test_truncated_executions_over_their_line_are_dropped_and_counted():
    """C5: two of four timed out, the line is .4: with two others, one may stay (1 of 3), the second would make 2 of 4."""
    live = Live(config(truncated_share_max=0.4)).see(opened(0), dispatched(A, 4))
    for member, (reward, ending) in enumerate(
        [(1.0, "completed"), (0.0, "timed_out"), (0.5, "timed_out"), (0.0, "completed")]
    ):
        live.see(*execution(A, member, reward, ending=ending))
    assert live.batch().truncated_share == pytest.approx(1 / 3)
    assert live.drops() == {names(A, 4)[2]: "truncated"}


def test_a_broken_promise_raises():
    """C8: the metric that measures a promise raises when the promise breaks."""
    closed = Live().see(*group(A, [1.0, 0.0]), opened(5)).batch()
    check_promises(closed, config(age_steps_max=5))
    with pytest.raises(InvariantBroken, match="age 5, the cap is 4"):
        check_promises(closed, config(age_steps_max=4))


def test_a_batch_that_breaks_the_bound_of_staleness_raises_the_alarm():
    """A3, A5, C8: a batch on record with age 5, read by a processor whose bound is 4: `staleness_bound`, once."""
    source = Live(config(age_steps_max=5)).see(opened(5), *group(A, [1.0, 0.0], version=0))
    live = Live(config(age_steps_max=4)).see(source.batch())
    (alarm,) = live.all(r.AlarmRaised)
    assert alarm.kind == "staleness_bound"
    assert (alarm.values["step"], alarm.values["oldest"], alarm.values["cap"]) == (5.0, 5.0, 4.0)
    assert not live.see(source.batch()).processor.intents and len(live.all(r.AlarmRaised)) == 1

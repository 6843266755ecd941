"""Policies for what has not arrived when a batch's wait is over (C5): later, wait, truncate, drop; each said, counted, and safe to be killed in."""

import pytest

from gyre import ids
from gyre import records as r
from services.trajproc.rpc import state_of
from tests.unit.trajproc.builders import Live, config, dispatched, ended, execution, group, leased, opened, started

A, B, C, D = (ids.group_id(index) for index in range(4))
WAIT_S, GRACE_S = 60, 20
BEGUN_S = 10.0
"""A's members end at 10 s; the batch takes A then."""


def waiting(missing: str, turns: int = 6, **settings) -> Live:
    """A batch of two of `turns` turns, begun at 10 s. B, C and D have one member each that is not there."""
    live = Live(config(turns_per_step=turns, wait_s=WAIT_S, missing=missing, missing_grace_s=GRACE_S, **settings)).see(
        opened(0), *group(A, [1.0, 0.0])
    )
    for name in (B, C, D):
        live.see(dispatched(name, 2), *execution(name, 0, 1.0), leased(name, 1))
    return live


def overdue(live: Live) -> list[r.BatchOverdue]:
    return live.all(r.BatchOverdue)


@pytest.mark.parametrize("missing", ["later", "wait", "truncate", "drop"])
def test_before_the_wait_is_over_nothing_is_said(missing):
    """C5: begun at 10 s, wait 60 s: at 69.9 s there is nothing to say."""
    live = waiting(missing).tick(BEGUN_S + WAIT_S - 0.1)
    assert not overdue(live) and not live.all(r.BatchClosed)


def test_later_closes_the_batch_without_them_and_says_who_was_missing():
    """C5: the batch has 2 of 6 turns from one group, so it waits for (6 − 2)/2 = 2 more groups, the oldest, B and C; D is for a later batch."""
    live = waiting("later").tick(BEGUN_S + WAIT_S)
    (fact,) = overdue(live)
    assert (fact.policy, fact.ordinal, fact.execution_ids) == ("later", 1, [f"{B}-e1", f"{C}-e1"])
    assert (fact.turns, fact.turns_target, fact.waited_s) == (2, 6, WAIT_S)
    assert (live.batch().cause, live.batch().groups) == ("wait", [A]) and not live.drops()
    live.see(*execution(B, 1, 0.0), *execution(C, 1, 0.0), *execution(D, 1, 0.0), opened(1))
    assert live.batch().groups == [B, C, D], "they come in the next batch"
    assert live.processor.overdue == {"later": 2}


def test_wait_keeps_the_batch_open_with_an_alarm_each_wait():
    """C5: alarms at 70 s and 130 s; when B and C come at last the batch closes by its turns."""
    live = waiting("wait").tick(BEGUN_S + WAIT_S).tick(BEGUN_S + 2 * WAIT_S - 1).tick(BEGUN_S + 2 * WAIT_S)
    assert [fact.ordinal for fact in overdue(live)] == [1, 2] and not live.all(r.BatchClosed)
    state = state_of(live.processor)
    assert (dict(state.overdue), state.overdue_now) == ({"wait": 4}, 2), "said twice of the same two"
    alarms = live.all(r.AlarmRaised)
    assert [alarm.kind for alarm in alarms] == ["batch_overdue"] * 2
    assert alarms[0].values == {"step": 0.0, "executions": 2.0, "waited_s": 60.0}
    live.see(*execution(B, 1, 0.0), *execution(C, 1, 0.0))
    assert (live.batch().cause, live.batch().groups) == ("turns", [A, B, C])


def test_truncate_waits_for_those_that_were_told_to_finish_and_scores_what_they_left():
    """C5, B4: B's and C's late members end as timed out with partial credit .25; both groups are trained in this batch, two truncated of six."""
    live = waiting("truncate").tick(BEGUN_S + WAIT_S)
    assert overdue(live)[0].policy == "truncate" and not live.all(r.BatchClosed)
    live.see(*execution(B, 1, 0.25, ending="timed_out"))
    assert not live.all(r.BatchClosed), "C's has not ended yet"
    live.see(*execution(C, 1, 0.25, ending="timed_out"))
    closed = live.batch()
    assert (closed.cause, closed.groups, closed.turns) == ("turns", [A, B, C], 6)
    assert closed.truncated_share == pytest.approx(2 / 6) and not live.drops()


def test_a_batch_that_got_all_it_waited_for_closes_even_when_turns_are_lacking():
    """C5: 20 turns wanted, A has 2 of one group: 9 more would be needed, three are there. All three end, and at 8 turns nothing else can be got."""
    live = waiting("truncate", turns=20).tick(BEGUN_S + WAIT_S)
    for name in (B, C, D):
        assert not live.all(r.BatchClosed)
        live.see(*execution(name, 1, 0.25, ending="timed_out"))
    assert (live.batch().cause, live.batch().turns) == ("wait", 8)


def test_drop_takes_the_late_members_out_with_reason_wait_and_trains_the_others():
    """C5: the late members are voided; the sample's reason is `wait`, not `voided`. B's other member stands alone and gives no gradient."""
    live = waiting("drop").tick(BEGUN_S + WAIT_S)
    assert overdue(live)[0].policy == "drop"
    live.see(*[ended(name, 1, None, ending="voided") for name in (B, C)])
    drops = live.drops()
    assert {name: drops[f"{name}-e1-a1"] for name in (B, C)} == {B: "wait", C: "wait"}
    assert live.batch().cause == "wait" and live.batch().groups == [A, B, C]
    assert live.processor.overdue == {"drop": 2} and live.processor.dropped["wait"] == 2


def test_who_arrives_before_the_command_reaches_him_has_arrived():
    """C5: told to leave, B's late member completes all the same: it is trained like any other."""
    live = waiting("drop").tick(BEGUN_S + WAIT_S).see(*execution(B, 1, 0.0), ended(C, 1, None, ending="voided"))
    assert f"{B}-e1-a1" not in live.drops() and f"{B}-e1-a1" in live.batch().sample_ids


def test_a_void_by_a_person_is_still_a_void():
    """C2: D was not among those that the batch waited for; voided by an operator it says so."""
    live = waiting("drop").tick(BEGUN_S + WAIT_S).see(ended(D, 1, None, ending="voided"))
    assert live.drops()[f"{D}-e1-a1"] == "voided"


@pytest.mark.parametrize("missing", ["truncate", "drop"])
def test_who_does_not_answer_within_the_grace_goes_into_a_later_batch(missing):
    """C5: said at 70 s, grace 20 s: at 90 s the batch closes with what it has."""
    live = waiting(missing).tick(BEGUN_S + WAIT_S).tick(BEGUN_S + WAIT_S + GRACE_S - 0.1)
    assert not live.all(r.BatchClosed)
    live.tick(BEGUN_S + WAIT_S + GRACE_S)
    assert (live.batch().cause, live.batch().groups) == ("wait", [A]) and len(overdue(live)) == 1
    live.see(*execution(B, 1, 0.5, ending="timed_out"), *execution(C, 1, 0.5, ending="timed_out"), opened(1))
    assert live.all(r.BatchExtended)[-1].step == 1


def test_a_group_at_its_last_step_is_truncated_rather_than_lost_to_the_age_cap():
    """C5, C8: cap 1, step 1: B (v_d 0) is not there, C's turns fill the batch. B is told to finish, and is trained at age 1."""
    settings = config(age_steps_max=1, wait_s=WAIT_S, missing="truncate", missing_grace_s=GRACE_S)
    live = Live(settings).see(dispatched(B, 2, 0), *execution(B, 0, 1.0), *group(C, [1.0, 0.0], version=1), opened(1))
    live.tick(BEGUN_S + WAIT_S)
    assert overdue(live)[0].execution_ids == [f"{B}-e1"] and not live.all(r.BatchClosed)
    live.see(*execution(B, 1, 0.25, ending="timed_out"))
    assert (live.batch().cause, live.batch().groups, live.batch().staleness_max) == ("turns", [C, B], 1)


@pytest.mark.parametrize("missing", ["later", "wait", "truncate", "drop"])
def test_a_kill_after_any_word_on_what_is_missing_changes_nothing(missing):
    """C5, restart: whatever was on record when the processor died, the next start says the rest and nothing twice."""
    late = {"truncate": [execution(B, 1, 0.25, ending="timed_out"), execution(C, 1, 0.25, ending="timed_out")],
            "drop": [[ended(B, 1, None, ending="voided")], [ended(C, 1, None, ending="voided")]]}  # fmt: skip
    whole = waiting(missing).see(started()).tick(BEGUN_S + WAIT_S)
    for facts in late.get(missing, []):
        whole.see(*facts)
    first = whole.stream.index(overdue(whole)[0])
    settings = whole.processor.config
    for cut in range(first + 1, len(whole.stream) + 1):
        ours = (r.SampleReady, r.SampleDropped, r.BatchExtended, r.BatchOverdue, r.BatchClosed, r.AlarmRaised)
        again = Live(settings, past=whole.stream[:cut])
        again.see(*[fact for fact in whole.stream[cut:] if not isinstance(fact, ours)])
        said = [type(fact).__name__ for fact in again.stream if isinstance(fact, ours)]
        assert sorted(said) == sorted(type(fact).__name__ for fact in whole.stream if isinstance(fact, ours)), cut
        assert [fact.groups for fact in again.stream if isinstance(fact, r.BatchClosed)] == [
            fact.groups for fact in whole.stream if isinstance(fact, r.BatchClosed)
        ]
    assert Live(settings, past=whole.stream * 2).said == []

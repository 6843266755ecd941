"""Executions into groups: endings, attempts, what is dropped and what is waited for (C5, C10)."""

import msgspec
import pytest

from gyre import ids
from gyre import records as r
from tests.unit.trajproc.builders import (
    Live,
    call,
    config,
    dispatched,
    ended,
    execution,
    group,
    leased,
    names,
    opened,
    started,
    submitted,
)

A, B, C = "g000001", "g000002", "g000003"


def test_a_group_is_told_when_its_last_member_ends_and_its_micro_steps_come_before_the_fact_that_lists_them():
    """C5: order of speech: samples, micro-steps, BatchExtended, BatchClosed last."""
    live = Live().see(opened(0), *group(A, [1.0, 0.0]))
    kinds = [type(record).__name__ for record in live.said]
    assert kinds == ["SampleReady", "SampleReady", "MicroStep", "BatchExtended", "BatchClosed"]
    closed = live.batch()
    assert (closed.cause, closed.turns, closed.divisor, closed.no_gradient) == ("turns", 2, 2, False)
    assert closed.sample_ids == names(A, 2) and closed.micro_ids == [live.queue[0].micro_id] == ["s000000-g000001-m0"]
    assert closed.failed_share == {"repair": 0.5}
    ready = live.all(r.SampleReady)[0]
    assert (ready.reward, ready.advantage, ready.targets_chosen, ready.tokens_tree, ready.paths) == (1.0, 0.5, 2, 5, 1)
    assert live.processor.groups == {}, "memory is bounded by what is in flight (agent-lightning#438)"


def test_failed_members_leave_with_their_reason_and_the_rest_is_used():
    """NeMo-RL#3470, B4: the baseline of [1, 0] is .5 though two more were dispatched; the divisor counts two."""
    live = Live().see(opened(0), dispatched(A, 4), *execution(A, 0, 1.0), *execution(A, 1, 0.0))
    live.see(ended(A, 2, None, ending="failed", calls=99), ended(A, 3, 1.0, valid=False, calls=99))
    assert live.drops() == {f"{A}-e2-a1": "environment_failed", f"{A}-e3-a1": "evaluation_failed"}
    assert [ready.advantage for ready in live.all(r.SampleReady)] == [0.5, -0.5]
    assert live.batch().divisor == 2


def test_a_single_valid_member_gives_no_gradient():
    """C10: there is nothing to compare it with; it is consumed, dropped with step and age, and its turn counts."""
    live = Live(config(turns_per_step=1)).see(opened(3), dispatched(A, 2, version=1), *execution(A, 0, 1.0))
    live.see(ended(A, 1, None, ending="voided"))
    assert live.drops() == {f"{A}-e1-a1": "voided", f"{A}-e0-a1": "no_gradient"}
    drop = live.all(r.SampleDropped)[-1]
    assert (drop.step, drop.age_steps, drop.turns) == (3, 2, 1)


def test_a_group_without_gradient_is_consumed_whole():
    """A5, C10: listed, counted in turns and divisor, no micro-step; the group beside it gives the gradient."""
    live = Live(config(turns_per_step=4)).see(opened(0), *group(A, [1.0, 1.0]), *group(B, [1.0, 0.0]))
    closed = live.batch()
    assert closed.groups == [A, B] and closed.divisor == 4 and closed.turns == 4
    assert closed.sample_ids == names(B, 2), "those that are trained: the others are dropped, and no sample is both"
    assert {micro.group_id for micro in live.queue} == {B} and not closed.no_gradient
    assert live.drops() == dict.fromkeys(names(A, 2), "no_gradient")
    assert closed.failed_share == {"repair": 0.5}, "of the samples kept, two, one failed"


def test_only_the_newest_attempt_counts_and_an_older_ones_ending_is_a_duplicate():
    """Style of fenced attempts: attempt 1's calls and late ending are not mixed into attempt 2."""
    name = ids.execution_id(A, 0)
    live = Live().see(opened(0), dispatched(A, 2), leased(A, 0, 1), call([1, 2], [7], execution=name))
    live.see(leased(A, 0, 2), call([1, 2], [8], index=1, execution=name), ended(A, 0, 0.0, attempt=1))
    assert live.drops() == {f"{A}-e0-a1": "duplicate"}
    live.see(*execution(A, 0, 1.0, attempt=2)[1:], *execution(A, 1, 0.0))
    assert live.batch().sample_ids == [f"{A}-e0-a2", f"{A}-e1-a1"]
    assert live.all(r.SampleReady)[0].targets_sampled == 2, "attempt 2 sampled two tokens"


def test_an_ended_execution_stays_ended():
    """Lifecycle: completed → leased is refused: a lease given out in spite of an ending changes nothing."""
    live = Live().see(opened(0), dispatched(A, 2), *execution(A, 0, 1.0), leased(A, 0, 2), *execution(A, 1, 0.0))
    assert live.batch().sample_ids == names(A, 2)


def test_a_group_that_is_sent_again_starts_over():
    """TaskDispatched.attempt_base: what came before base 3 is fenced; its ending on record is a duplicate."""
    live = Live().see(dispatched(A, 2), *execution(A, 0, 1.0), dispatched(A, 2, 4, base=3), opened(4))
    assert live.drops() == {f"{A}-e0-a1": "duplicate"}
    live.see(*execution(A, 0, 1.0, attempt=4), *execution(A, 1, 0.0, attempt=4))
    assert live.batch().sample_ids == names(A, 2, attempt=4) and live.batch().staleness_max == 0


def test_a_group_waits_for_every_record_its_endings_count():
    """B1: an ending that counts two calls, one on record: not built before the other came."""
    name = ids.execution_id(A, 1)
    live = Live().see(opened(0), dispatched(A, 2), *execution(A, 0, 1.0), call([1], [2], execution=name))
    live.see(ended(A, 1, 0.0, calls=2, turns=2))
    assert not live.said
    live.see(call([3], [4], index=1, parent=0, cut=2, execution=name))
    assert live.all(r.SampleReady)[1].targets_sampled == 2


def test_an_execution_without_target_tokens_is_dropped_and_still_in_the_baseline():
    """training.md: masked out of the gradient is not masked out of the baseline: rewards 1, 0, 0 → 2/3, −1/3."""
    live = Live().see(
        opened(0), dispatched(A, 3), *execution(A, 0, 1.0), *execution(A, 1, 0.0), ended(A, 2, 0.0, calls=0)
    )
    assert live.drops() == {f"{A}-e2-a1": "no_targets"}
    assert [ready.advantage for ready in live.all(r.SampleReady)] == pytest.approx([2 / 3, -1 / 3])


def test_evaluations_are_no_samples():
    """B4: purpose `evaluation` is neither trained nor dropped nor waited for, also when its lease came before its dispatch."""
    facts = [leased(A, 0), dispatched(A, 1, purpose="evaluation"), ended(A, 0, 1.0, purpose="evaluation", calls=0)]
    live = Live().see(started(), submitted(A, "evaluation"), *facts)
    assert not live.said and not live.processor.groups
    assert A in live.processor.done and live.processor.done.size == 1


def test_traces_and_waiting_are_carried_on():
    """E: the ending's traceparent stands on samples and rows."""
    parent = "00-" + "1" * 32 + "-" + "2" * 16 + "-01"
    live = Live().see(opened(0), dispatched(A, 2), *execution(A, 0, 1.0, traceparent=parent), *execution(A, 1, 0.0))
    assert live.all(r.SampleReady)[0].traceparent == live.queue[0].rows[0].traceparent == parent


def test_a_group_without_executions_is_over_and_one_that_names_an_execution_twice_has_it_once():
    """Nothing is said of nothing, and the processor goes on; the twin would have been a second sample of the same name."""
    empty = msgspec.structs.replace(dispatched(A, 2), execution_ids=[])
    live = Live().see(opened(0), empty)
    assert not live.processor.unfinished and not live.said
    twice = msgspec.structs.replace(dispatched(B, 2), execution_ids=[f"{B}-e0", f"{B}-e1", f"{B}-e0"])
    live.see(twice, *execution(B, 0, 1.0), *execution(B, 1, 0.0))
    assert live.batch().sample_ids == names(B, 2)

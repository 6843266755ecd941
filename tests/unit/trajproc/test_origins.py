"""Replays on a snapshot and resamples in a new environment are counted apart and never in one batch (C3)."""

import msgspec
import pytest

from gyre import ids
from gyre import records as r
from gyre.errors import InvariantBroken
from services.trajproc.core.batch import check_promises
from tests.unit.scheduler.facts import running
from tests.unit.trajproc.builders import Live, config, dispatched, execution, group, leased, opened, started

A, B, C = (ids.group_id(index) for index in range(3))


def again(name: str, member: int, outcome: float, *, is_replay: bool) -> list:
    """A second attempt of a member: leased, started, one turn, ended."""
    lease, *rest = execution(name, member, outcome, attempt=2)
    begun = msgspec.structs.replace(running(ids.execution_id(name, member), 2), is_replay=is_replay)
    return [leased(name, member, 1), lease, begun, *rest]


def retried(name: str, *, is_replay: bool) -> list:
    """A group of two whose first member's first attempt was lost."""
    return [dispatched(name, 2), *again(name, 0, 1.0, is_replay=is_replay), *execution(name, 1, 0.0)]


def test_each_sample_says_where_it_comes_from():
    """C3: a second attempt in a new environment is a resample, on a snapshot a replay, the other members are first attempts."""
    live = Live(config(turns_per_step=4)).see(*retried(A, is_replay=True), *group(B, [1.0, 0.0]), opened(0))
    assert [sample.origin for sample in live.all(r.SampleReady)] == ["replay", "first", "first", "first"]
    assert live.batch().origins == {"replay": 1, "first": 3}
    live = Live().see(*retried(A, is_replay=False), opened(0))
    assert live.batch().origins == {"resample": 1, "first": 1}


def test_a_group_with_replays_waits_for_the_next_batch_when_this_one_has_resamples():
    """C3: A (resampled) is taken first, B (replayed) must wait, C (first attempts) may join either: A and C, then B."""
    live = Live(config(turns_per_step=4)).see(*retried(A, is_replay=False), *retried(B, is_replay=True))
    live.see(opened(0))
    assert [fact.group_id for fact in live.all(r.BatchExtended)] == [A] and not live.all(r.BatchClosed)
    live.see(*group(C, [1.0, 0.0]))
    assert live.batch().groups == [A, C] and "replay" not in live.batch().origins
    live.see(opened(1), started())
    assert (live.batch().groups, live.batch().origins) == ([B], {"replay": 1, "first": 1})


def test_a_batch_that_only_unfitting_groups_could_fill_closes_as_if_there_were_none():
    """C5: nothing is unfinished or queued: the batch of A closes as exhausted though B is ready; B is the next batch."""
    live = Live(config(turns_per_step=4)).see(started(), *retried(A, is_replay=False), *retried(B, is_replay=True))
    live.see(opened(0))
    assert (live.batch().groups, live.batch().cause) == ([A], "exhausted")
    live.see(opened(1))
    assert live.batch().groups == [B]


def test_inside_one_group_resamples_stay_and_replays_leave():
    """C3: three members, one each: rewards [1, 0, 0] keep their baseline 1/3, the replay is dropped as `mixed`."""
    live = Live().see(
        dispatched(A, 3), *again(A, 0, 1.0, is_replay=False), *again(A, 1, 0.0, is_replay=True), *execution(A, 2, 0.0), opened(0)
    )  # fmt: skip
    assert live.drops() == {f"{A}-e1-a2": "mixed"} and "mixed" in r.DROP_REASONS
    assert live.all(r.SampleReady)[0].advantage == pytest.approx(2 / 3)
    assert live.batch().origins == {"resample": 1, "first": 1}


def test_a_replay_that_was_lost_and_resampled_is_a_resample():
    """C3: the marker is the attempt's: attempt 2 was a replay, attempt 3 began in a new environment."""
    lease, *rest = execution(A, 0, 1.0, attempt=3)
    begun = msgspec.structs.replace(running(ids.execution_id(A, 0), 2), is_replay=True)
    live = Live().see(dispatched(A, 2), leased(A, 0, 2), begun, lease, *rest, *execution(A, 1, 0.0), opened(0))
    assert live.batch().origins == {"resample": 1, "first": 1}


def test_a_batch_that_holds_both_breaks_its_promise():
    closed = Live().see(*group(A, [1.0, 0.0]), opened(0)).batch()
    mixed = msgspec.structs.replace(closed, origins={"replay": 1, "resample": 1})
    with pytest.raises(InvariantBroken, match="replays beside resamples"):
        check_promises(mixed, config())

"""Faults that users of such systems met, where batches are made: what is right, worked out by hand."""

from gyre import ids
from gyre import records as r
from tests.unit.scheduler.facts import running
from tests.unit.trajproc.builders import Live, config, dispatched, execution, group, leased, opened

LONG, SHORT = ids.group_id(0), [ids.group_id(index) for index in range(1, 6)]


def test_age_runs_from_dispatch_to_the_update_that_trains_it_the_queue_included():
    """prime-rl#2674: dispatched at version 0, sampled under versions 1 and 2 (it had waited for a place), ready at once and trained in step 4:
    age 4, not 2 and not 0; tokens keep their own versions beside it."""
    live = Live().see(dispatched(LONG, 2, 0))
    live.see(*execution(LONG, 0, 1.0, version=1), *execution(LONG, 1, 0.0, version=2), opened(4))
    closed = live.batch()
    assert (closed.staleness_mean, closed.staleness_max) == (4.0, 4)
    samples = live.all(r.SampleReady)
    assert [(fact.policy_version, fact.version_min, fact.version_max) for fact in samples] == [(0, 1, 1), (0, 2, 2)]


def test_long_work_ages_upward_and_comes_through_before_what_is_younger():
    """tinker-cookbook#822: a group of version 0 whose last member takes until step 3; younger groups fill the batches meanwhile. At its last step the
    batch waits for it, and takes it beside younger groups that were ready before."""
    live = Live(config(age_steps_max=3)).see(dispatched(LONG, 2, 0), *execution(LONG, 0, 1.0))
    for step, name in enumerate(SHORT[:3]):
        live.see(opened(step), *group(name, [1.0, 0.0], version=step))
        assert live.batch().groups == [name] and live.batch().step == step
    live.see(*group(SHORT[3], [1.0, 0.0], version=2), opened(3))
    assert live.batch().step == 2, "full, and open for the group whose last step this is"
    live.see(*execution(LONG, 1, 0.0))
    assert live.batch().groups == [SHORT[3], LONG] and live.batch().staleness_max == 3 and not live.drops()


def test_a_lost_attempt_does_not_make_an_execution_younger():
    """tinker-cookbook#822: the environment of a member died; its second attempt began and ended at version 5: the group is of version 0 still."""
    name = ids.execution_id(LONG, 0)
    live = Live().see(dispatched(LONG, 2, 0), leased(LONG, 0, 1), running(name), *execution(LONG, 1, 0.0))
    live.see(*execution(LONG, 0, 1.0, version=5, attempt=2), opened(6))
    assert live.batch().staleness_mean == 6.0 and live.batch().origins == {"first": 1, "resample": 1}

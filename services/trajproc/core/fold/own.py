"""The processor's own facts: they confirm what was decided, and where the fold came to another view, the fact on record wins."""

from gyre import records as r
from services.trajproc.core import alarms
from services.trajproc.core.fold import absent, elites
from services.trajproc.core.fold.decide import give_up, reopen, take
from services.trajproc.core.fold.pool import Pool
from services.trajproc.core.state import Group, InTraining


def set_aside(pool: Pool, fact: r.CallSetAside) -> object:
    if fact.reason == absent.REASON:
        return absent.given_up(pool, fact)
    group = pool.groups.get(fact.group_id)
    if group is not None and group.set_aside.pop(fact.call_id, None) is not None:
        pool.set_aside[fact.reason] += 1
        if not group.set_aside:
            pool.said("set_aside", fact.group_id)
    return None


def ready(pool: Pool, fact: r.SampleReady) -> None:
    for verdict in pool.verdicts(fact.group_id, fact.sample_id):
        if not verdict.fate:
            _watch_gaming(pool, fact)
        elites.told(pool, fact)
        verdict.fate = verdict.fate or "ready"
        verdict.ready_at_s = fact.at_s
        _confirm_told(pool, fact.group_id)


def _watch_gaming(pool: Pool, fact: r.SampleReady) -> None:
    alarm = pool.gaming.see(fact.task_type, fact.rewards, fact.repeated_share, fact.at_s)
    if alarm is not None:
        pool.want("alarm", alarms.key(alarm), alarm)


def dropped(pool: Pool, fact: r.SampleDropped) -> None:
    was_pending = pool.said("duplicate", fact.sample_id) | pool.said("untrainable", fact.sample_id)
    for verdict in pool.verdicts(fact.group_id, fact.sample_id):
        was_pending |= verdict.fate != "dropped"
        verdict.fate = "dropped"
        _confirm_told(pool, fact.group_id)
    pool.dropped[fact.reason] += was_pending


def _confirm_told(pool: Pool, group_id: str) -> None:
    group = pool.groups[group_id]
    if all(verdict.fate for verdict in group.verdicts):
        pool.said("tell", group_id)
    if group.dropped_step >= 0 and group.is_dropped:
        pool.forget(group_id)


def extended(pool: Pool, fact: r.BatchExtended) -> None:
    batch, group = pool.batch, pool.groups.get(fact.group_id)
    if batch is None or batch.step != fact.step or (group is None and fact.group_id not in batch.taken):
        return
    if fact.group_id not in batch.taken:
        reopen(pool, batch)
        take(pool, batch, group, fact.at_s)
    taken = batch.taken[fact.group_id]
    taken.micro_ids, taken.sample_ids, taken.turns = list(fact.micro_ids), list(fact.sample_ids), fact.turns
    taken.untrained_targets, taken.untrained_sequences = fact.untrained_targets, fact.untrained_sequences
    if group is not None:
        elites.admit(pool, group, taken)
        _remember(pool, group, fact)
    if group is not None and not pool.is_streaming:
        batch.held[fact.group_id] = group
    pool.forget(fact.group_id)


def _remember(pool: Pool, group: Group, fact: r.BatchExtended) -> None:
    """The endings of what is trained now: what is said of a sample that the trainer finds impossible is said of its ending."""
    counted = set(fact.sample_ids)
    pool.in_training.setdefault(fact.step, {}).update(
        {
            verdict.sample_id: InTraining(verdict.ended, group.policy_version)
            for verdict in group.verdicts or []
            if verdict.sample_id in counted and verdict.fate != "dropped"
        }
    )


def overdue(pool: Pool, fact: r.BatchOverdue) -> None:
    """What becomes of those that have not arrived follows from the fact, by the policy it names."""
    pool.said("overdue", f"{fact.step}.{fact.ordinal}")
    batch = pool.batch
    if (
        batch is None
        or batch.step != fact.step
        or (batch.overdue is not None and batch.overdue.ordinal >= fact.ordinal)
    ):
        return
    batch.overdue = fact
    pool.overdue[fact.policy] += len(fact.execution_ids)
    if fact.policy == "later":
        give_up(pool, batch)
    elif fact.policy == "wait":
        alarm = alarms.of_wait(fact)
        pool.want("alarm", alarms.key(alarm), alarm)
    else:
        for execution in fact.execution_ids:
            group = pool.groups.get(execution.rpartition("-e")[0])
            if group is not None:
                group.member(execution).is_late = True


def closed(pool: Pool, fact: r.BatchClosed) -> None:
    batch = pool.batch
    if fact.step <= pool.closed_step:
        return
    pool.closed_step = fact.step
    if batch is not None and batch.step == fact.step:
        reopen(pool, batch)
        left = [name for name in batch.taken if name not in fact.groups]
        for name in left:
            pool.said("take", name)
        pool.give_back(left)
        pool.batch = None
    elites.closed(pool, fact)
    pool.no_gradient_batches += fact.no_gradient
    pool.no_gradient_streak = pool.no_gradient_streak + 1 if fact.no_gradient else 0
    for alarm in alarms.of_batch(fact, pool.no_gradient_streak, pool.config):
        pool.want("alarm", alarms.key(alarm), alarm)


def alarmed(pool: Pool, fact: r.AlarmRaised) -> None:
    if fact.service == alarms.SERVICE:
        pool.said("alarm", alarms.key(fact))


HANDLERS = {
    r.CallSetAside: set_aside,
    r.SampleReady: ready,
    r.SampleDropped: dropped,
    r.BatchExtended: extended,
    r.BatchOverdue: overdue,
    r.BatchClosed: closed,
    r.AlarmRaised: alarmed,
}

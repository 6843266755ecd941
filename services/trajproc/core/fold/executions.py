"""Others' facts about groups, executions and calls: what is in flight, and when a group is complete."""

from gyre import records as r
from services.trajproc.core.fold.pool import NO_NEWS, Pool
from services.trajproc.core.state import Group, sample_of


def run_started(pool: Pool, _fact: r.RunStarted) -> None:
    pool.is_running = True


def submitted(pool: Pool, fact: r.GroupSubmitted) -> None:
    known = fact.group_id in pool.done or (fact.group_id in pool.groups and pool.groups[fact.group_id].is_dispatched)
    if fact.task.purpose == "train" and not known:
        pool.queued.add(fact.group_id)
        pool.tasks[fact.group_id] = fact.task.task_id
        pool.has_work = True
        if pool.evaluators:
            pool.payloads[fact.group_id] = fact.task.payload


def dispatched(pool: Pool, fact: r.GroupDispatched) -> None:
    if fact.purpose != "train" or not fact.execution_ids:
        pool.forget(fact.group_id)
    group = pool.group(fact.group_id)
    if group is None:
        return
    pool.queued.discard(fact.group_id)
    if group.is_dispatched and fact.attempt_base <= group.attempt_base:
        return
    if fact.attempt_base > 0 and not _fence(pool, group, fact.attempt_base):
        return
    pool.unfinished.discard(group)
    pool.moved_at_s = max(pool.moved_at_s, fact.at_s)
    pool.boundary_version = max(pool.boundary_version, fact.policy_version)
    pool.dispatches += 1
    pool.has_work = True
    group.is_dispatched, group.order, group.attempt_base = True, pool.dispatches, fact.attempt_base
    group.execution_ids, group.policy_version = list(dict.fromkeys(fact.execution_ids)), fact.policy_version
    group.task_type, group.tenant = fact.task_type, fact.tenant
    pool.unfinished.add(group)
    pool.settle(group)


def _fence(pool: Pool, group: Group, attempt_base: int) -> bool:
    """A group that is sent again starts over; what its attempts up to `attempt_base` said no longer counts."""
    if (pool.batch is not None and group.group_id in pool.batch.taken) or group.dropped_step >= 0:
        return False
    gone = {verdict.sample_id for verdict in group.verdicts or [] if verdict.fate == "dropped"}
    pool.said("set_aside", group.group_id)
    pool.said("tell", group.group_id)
    pool.ready.discard(group)
    group.verdicts, group.samples, group.set_aside = None, {}, {}
    for member in group.members.values():
        ending = member.ended
        if ending is not None and ending.attempt <= attempt_base:
            member.stale.add(ending.attempt)
            member.ended = None
            if sample_of(ending) not in gone:
                pool.want("duplicate", sample_of(ending), ending)
        member.is_late = False
        member.see(max(member.attempt, attempt_base + 1))
    return True


def _group_of(
    pool: Pool, fact: r.ExecutionLeased | r.ExecutionStarted | r.CallRecorded | r.ExecutionEnded
) -> Group | None:
    """None when nothing more is wanted of it, or the execution is another group's."""
    return pool.group(fact.group_id) if fact.execution_id.rpartition("-e")[0] == fact.group_id else None


def leased(pool: Pool, fact: r.ExecutionLeased) -> object:
    if (group := _group_of(pool, fact)) is not None:
        group.member(fact.execution_id).see(fact.attempt)
    return NO_NEWS


def started(pool: Pool, fact: r.ExecutionStarted) -> object:
    if (group := _group_of(pool, fact)) is not None:
        member = group.member(fact.execution_id)
        if member.see(fact.attempt) and member.ended is None:
            member.is_replay = fact.is_replay
    return NO_NEWS


def called(pool: Pool, fact: r.CallRecorded) -> object:
    if fact.purpose != "train" or (group := _group_of(pool, fact)) is None:
        return NO_NEWS
    member = group.member(fact.execution_id)
    if not member.see(fact.attempt) or group.verdicts is not None:
        return NO_NEWS
    member.add(fact, pool.known)
    return pool.settle(group) if member.ended is not None else NO_NEWS


def ended(pool: Pool, fact: r.ExecutionEnded) -> object:
    if fact.purpose != "train" or (group := _group_of(pool, fact)) is None:
        return NO_NEWS
    pool.moved_at_s = max(pool.moved_at_s, fact.at_s)
    member = group.member(fact.execution_id)
    if member.see(fact.attempt):
        member.ended = member.ended or fact
        if not member.is_complete:
            pool.short.add((group.group_id, member.execution_id))
        return pool.settle(group)
    if fact.attempt not in member.stale:
        member.stale.add(fact.attempt)
        pool.want("duplicate", sample_of(fact), fact)
    return NO_NEWS


HANDLERS = {
    r.RunStarted: run_started,
    r.GroupSubmitted: submitted,
    r.GroupDispatched: dispatched,
    r.ExecutionLeased: leased,
    r.ExecutionStarted: started,
    r.ExecutionEnded: ended,
    r.CallRecorded: called,
}

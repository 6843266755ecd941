"""Records that an ending counts and that do not come: unreadable on the stream, or lost before they were on it (B1).

A gateway says an ending after its calls' records, so what is not there soon will never be. The shell says so (`CallSetAside`, reason `missing`), and
as with evaluators' answers the word counts when it comes on the stream, at its place: a restart then judges the group with the same records.
"""

from collections.abc import Iterator

from gyre import ids
from gyre import records as r
from services.trajproc.core.fold.pool import NO_NEWS, Pool
from services.trajproc.core.state import sample_of

RECORDS_S = 60.0
"""From the ending on, by the processor's clock: far more than what another order on the stream could explain."""
TOLD_MAX = 64
"""Calls of one execution of which this is said; one is enough."""
REASON = "missing"


def overdue(pool: Pool, now_s: float) -> Iterator[r.CallSetAside]:
    """What is to be said of executions that ended RECORDS_S ago and whose records are not all there."""
    for group_id, execution_id in list(pool.short):
        group = pool.groups.get(group_id)
        member = group.members[execution_id] if group is not None else None
        if member is None or member.ended is None or member.is_complete:
            pool.short.discard((group_id, execution_id))
        elif now_s - member.ended.at_s >= RECORDS_S:
            known = {call.call_index for call in member.calls.values()}
            wanted = min(member.ended.calls - len(member.calls), TOLD_MAX)
            absent = (index for index in range(member.ended.calls) if index not in known)
            for index, _ in zip(absent, range(wanted), strict=False):
                yield r.CallSetAside(
                    call_id=ids.call_id(sample_of(member.ended), index), execution_id=execution_id, group_id=group_id,
                    attempt=member.ended.attempt, reason=REASON, at_s=now_s,
                    detail=f"{len(member.calls)} of {member.ended.calls} records are there {RECORDS_S:g} s after the ending",
                )  # fmt: skip


def given_up(pool: Pool, fact: r.CallSetAside) -> object:
    """The execution's records are as many as there will be."""
    group = pool.groups.get(fact.group_id)
    member = group.members.get(fact.execution_id) if group is not None else None
    if member is None or member.ended is None or fact.attempt != member.attempt or fact.call_id in member.absent:
        return NO_NEWS
    if group.verdicts is not None:
        return NO_NEWS
    member.absent.add(fact.call_id)
    pool.set_aside[REASON] += 1
    return pool.settle(group)

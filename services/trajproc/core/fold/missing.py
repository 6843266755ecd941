"""What has not arrived when a batch's wait is over (C5): said once, with the policy, and then it follows from the fact.

    later     the batch closes without it; it goes into a later one
    wait      the batch stays open; an alarm, again after each further wait
    truncate  it is told to finish where it stands and is scored on what it left behind; what never started is voided
    drop      it is voided and leaves with reason `wait`

Whom the batch waits for: as many of the oldest unfinished groups as it would take by the turns of those it has, and every group whose last step
this is. With `truncate` and `drop` the scheduler commands and the endings come by themselves; what does not answer within
`missing_grace_s` is left to a later batch.
"""

import math

from gyre import records as r
from services.trajproc.core.fold.pool import Pool
from services.trajproc.core.state import Batch, Group

ENDED_BY_POLICY = ("truncate", "drop")


def is_over(pool: Pool, batch: Batch, now_s: float) -> bool:
    """The wait of a batch that has begun, or the grace of those that were told to finish, is over."""
    if batch.begun_at_s is None:
        return False
    if batch.overdue is None:
        return now_s - batch.begun_at_s >= pool.config.wait_s
    is_ended = batch.overdue.policy in ENDED_BY_POLICY
    return now_s - batch.overdue.at_s >= (pool.config.missing_grace_s if is_ended else pool.config.wait_s)


def overdue(pool: Pool, batch: Batch, now_s: float) -> r.BatchOverdue | None:
    """What is to be said when the wait is over; None when nothing is missing that a policy could change."""
    known = batch.overdue
    if known is not None and known.policy in ENDED_BY_POLICY:
        return None
    late = [
        member.execution_id for group in awaited(pool, batch) for member in group.dispatched_members if member.ended is None
    ]  # fmt: skip
    if not late:
        return None
    return r.BatchOverdue(
        step=batch.step, ordinal=known.ordinal + 1 if known else 1, policy=pool.config.missing, execution_ids=late,
        turns=batch.turns, turns_target=pool.config.turns_per_step, waited_s=now_s - batch.begun_at_s, at_s=now_s,
    )  # fmt: skip


def awaited(pool: Pool, batch: Batch) -> list[Group]:
    """The unfinished groups that the batch waits for, oldest dispatch first."""
    unfinished = list(pool.unfinished)
    lacking = pool.config.turns_per_step - batch.turns
    of_one = max(1.0, batch.turns / max(1, len(batch.taken)))
    wanted = max(0, math.ceil(lacking / of_one))
    last_chance = [
        group for group in unfinished[wanted:] if batch.step - group.policy_version == pool.config.age_steps_max
    ]
    return unfinished[:wanted] + last_chance


def have_all_ended(pool: Pool, batch: Batch) -> bool:
    """All that were told to finish have; their groups are judged, so the batch has what it can get."""
    known = batch.overdue
    if known is None or known.policy not in ENDED_BY_POLICY:
        return False
    waiting = {name for group in pool.unfinished for name in group.execution_ids}
    return not waiting.intersection(known.execution_ids)

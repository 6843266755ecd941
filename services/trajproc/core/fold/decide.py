"""Decisions: which group the open batch takes next, what is too old, when the batch is complete (C5, C8)."""

from services.trajproc.core import batch as batches
from services.trajproc.core.fold import missing
from services.trajproc.core.fold.pool import Pool
from services.trajproc.core.origins import fits
from services.trajproc.core.state import Batch, Group

STARVED_S = 5.0
"""A batch that nothing more can reach closes after this long: nothing is unfinished, and the scheduler has spoken of the boundary."""


def decide(pool: Pool, at_s: float) -> None:
    """Take what is ready, oldest first; close what is complete. A group's last step is not let pass (wait rather than drop)."""
    batch, cap = pool.batch, pool.config.age_steps_max
    if batch is None or batch.closing:
        return
    for group in pool.ready:
        age_steps = batch.step - group.policy_version
        if age_steps > cap:
            _drop_aged(pool, group, batch.step)
        elif not fits(group, batch):
            continue
        elif batch.turns < pool.config.turns_per_step or age_steps == cap:
            take(pool, batch, group, at_s)
        else:
            break
    is_over = missing.have_all_ended(pool, batch)
    is_last_chance = pool.unfinished.has_version(batch.step - cap)
    if batch.turns >= pool.config.turns_per_step:
        if not is_last_chance:
            close(pool, batch, "turns")
    elif is_over:
        close(pool, batch, "wait")
    elif pool.is_running and pool.has_work and not pool.queued and not pool.unfinished:
        close(pool, batch, "exhausted")


def tick(pool: Pool, now_s: float) -> None:
    """What follows from time alone: the wait policy (C5)."""
    batch = pool.batch
    if batch is None or batch.closing:
        return
    is_idle = (
        pool.is_running
        and pool.has_work
        and not pool.unfinished
        and not any(fits(group, batch) for group in pool.ready)
    )
    if missing.is_over(pool, batch, now_s):
        if (fact := missing.overdue(pool, batch, now_s)) is not None:
            pool.want("overdue", f"{fact.step}.{fact.ordinal}", fact)
        elif pool.config.missing != "wait" or not pool.unfinished:
            give_up(pool, batch)
    elif is_idle and now_s - max(batch.opened_at_s, pool.moved_at_s) >= pool.config.wait_s:
        close(pool, batch, "wait")
    elif is_idle and pool.boundary_version >= pool.burst[1] and now_s - pool.moved_at_s >= STARVED_S:
        close(pool, batch, "exhausted")


def give_up(pool: Pool, batch: Batch) -> None:
    """Close without what has not arrived; with its turns it is complete all the same."""
    close(pool, batch, "turns" if batch.turns >= pool.config.turns_per_step else "wait")


def take(pool: Pool, batch: Batch, group: Group, at_s: float) -> None:
    batch.taken[group.group_id] = batches.take(group, batch, pool.config)
    pool.ready.discard(group)
    batch.begun_at_s = at_s if batch.begun_at_s is None else batch.begun_at_s
    pool.want("take", group.group_id, group)


def _drop_aged(pool: Pool, group: Group, step: int) -> None:
    group.dropped_step = step
    pool.ready.discard(group)
    if group.undropped:
        pool.want("age", group.group_id, group)
    elif group.is_dropped:  # else what is still to be said of its members would be forgotten with it
        pool.forget(group.group_id)


def close(pool: Pool, batch: Batch, cause: str) -> None:
    batch.closing = cause
    pool.want("close", str(batch.step), batch)


def reopen(pool: Pool, batch: Batch) -> None:
    """The record knows more of this batch than was decided: it is not complete yet."""
    batch.closing = ""
    pool.said("close", str(batch.step))

"""What is sent now (A4, C1): evaluations at once inside their bound, train groups as the boundary or continuous dispatch asks, each tier inside
its cap."""

import math
from collections.abc import Iterator

import msgspec

from gyre.ids import execution_id, seed_for
from gyre.records import GroupDispatched, TaskDispatched, TaskSpec
from gyre.records.task import TRAINED_TEMPERATURES
from services.scheduler.core.groups import Group
from services.scheduler.core.queue import Selection, promotions
from services.scheduler.core.settings import Settings
from services.scheduler.core.state import State


def groups_due(state: State) -> int:
    """Train groups to be sent now.

    Boundary: what the last boundary still has to send. Continuous: what brings the outstanding groups back to the boundary's level, as far as the
    steps that are left consume it; when the burst's last step is done the publish is waited for, so that what follows carries its version.
    """
    if state.settings.dispatch == "boundary":
        return state.need
    if not state.is_burst_open or state.steps_done >= state.burst_end:
        return 0
    consumable = math.ceil((state.steps_wanted - state.steps_done) * state.groups_per_step)
    return max(0, min(state.level, consumable) - state.outstanding_groups)


def has_train_work(state: State) -> bool:
    """A burst is open and goes on by itself, by what is outstanding or will be, or by what is_dry closes."""
    if not state.is_burst_open:
        return False
    return state.outstanding_groups > 0 or is_dry(state) or (groups_due(state) > 0 and bool(state.queue.groups))


def is_dry(state: State) -> bool:
    """Nothing is left to train in a burst that has begun (all was dropped, or its first steps took more than planned): its steps must be opened all
    the same, to be closed without gradient, or the next boundary would never come."""
    has_begun = state.sent_groups > 0 or state.steps_done > state.opened_step
    return state.outstanding_groups == 0 and has_begun and state.steps_done < state.burst_end


def in_order(state: State) -> Iterator[Group]:
    """The queue as it would be sent, were there no caps."""
    selection = selected(state)
    for group in selection:
        selection.take()
        yield group


def selected(state: State) -> Selection:
    return Selection(state.queue, state.settings, state.estimates, state.knobs.order)


def select(state: State) -> list[Group]:
    """Groups to be sent now: evaluations inside their bound, and train groups that are due, inside their tiers' caps.

    What could not be sent at the boundary (nothing queued, tier full) follows later under the same policy version; once a cell has been released
    in this burst only what the remaining cells can hold at once (continuous dispatch has no such bound: it keeps its level). A group larger than
    its tier's cap goes when the tier is empty. A group for which its tier has no room holds the tier: smaller ones that passed it by would keep
    it waiting for ever.
    """
    chosen = state.evaluations.due(state.settings, has_train_work(state))
    due = groups_due(state)
    if due == 0 or not state.queue.groups:
        return chosen
    room = state.capacity - state.waterlevel - sum(group.size for group in chosen)
    is_late = state.releases > 0 and state.settings.dispatch == "boundary"
    active = dict(state.active_by_tier)
    full: set[str] = set()
    selection = selected(state)
    for group in selection:
        unfinished = active.get(group.tier, 0)
        if unfinished and unfinished + group.size > state.settings.tier(group.tier).concurrency_max:
            full.add(group.tier)
        if group.tier in full or (is_late and group.size > room):
            selection.refuse()
            continue
        selection.take()
        chosen.append(group)
        active[group.tier] = unfinished + group.size
        room -= group.size
        due -= 1
        if due == 0:
            break
    return chosen


def dispatched(state: State, group: Group, now_s: float) -> GroupDispatched:
    """The fact that sends a group."""
    return GroupDispatched(
        group_id=group.group_id, task_type=group.task.task_type, tenant=group.task.tenant, purpose=group.task.purpose, tier=group.tier,
        execution_ids=[execution_id(group.group_id, member) for member in range(group.size)],
        policy_version=state.published_version, queue_wait_s=max(0.0, now_s - group.submitted_at_s),
        promotions=promotions(group, state.settings, now_s), at_s=now_s, attempt_base=group.attempt_base,
        fingerprint=state.settings.fingerprint,
    )  # fmt: skip


def tasks(state: State, group: Group) -> Iterator[TaskDispatched]:
    """The work-queue messages of a dispatched group, one a member; the same whenever they are made again."""
    return (task(state, group, member) for member in range(group.size))


def task(state: State, group: Group, member: int) -> TaskDispatched:
    """One member's message."""
    return TaskDispatched(
        execution_id=execution_id(group.group_id, member), group_id=group.group_id, member=member,
        task=annealed(group.task, state.settings, group.policy_version), tier=group.tier,
        policy_version=group.policy_version, seed=seed_for(state.settings.run_seed, group.group_id, member),
        attempt_base=group.attempt_base, fingerprint=state.settings.fingerprint, dispatched_at_s=group.dispatched_at_s,
    )  # fmt: skip


def annealed(task: TaskSpec, settings: Settings, version: int) -> TaskSpec:
    """The task as it is drawn at this policy version: its temperature times f, from 1 to f_end = `anneal_to` along a half cosine (D7),
    f(v) = f_end + (1 − f_end)·½(1 + cos π·min(1, v/`anneal_steps`)). Evaluations, and all tasks where nothing anneals, are as they were submitted."""
    if settings.anneal_steps == 0 or task.purpose != "train":
        return task
    done = min(1.0, version / settings.anneal_steps)
    factor = settings.anneal_to + (1.0 - settings.anneal_to) * 0.5 * (1.0 + math.cos(math.pi * done))
    lowest, highest = TRAINED_TEMPERATURES
    return msgspec.structs.replace(task, temperature=min(max(task.temperature * factor, lowest), highest))

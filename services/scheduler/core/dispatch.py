"""Boundary dispatch (A4): how many groups, which ones, in what order (C1). The law and its proof: docs/staleness.md."""

import math

from gyre.ids import execution_id, seed_for
from gyre.records import BatchClosed, GroupDispatched, TaskDispatched
from services.scheduler.core.types import Group, State

SMOOTHING = 0.25
"""Weight of the newest burst in B̂: a memory of four bursts. Any value keeps the law of the mean, whose error is |B̂ − B|/(SMOOTHING · bursts);
larger ones follow a drifting workload sooner and pass more of its noise on to the depth of dispatch."""
SHORTFALL_FACTOR_MAX = 2.0
"""A batch that ran dry raises B̂ by at most this factor of what it had."""
EPSILON_GROUPS = 1e-9
"""Keeps 3 · 0.1 · 10 groups from being 2 by floating point."""


def boundary_need(state: State) -> tuple[int, float]:
    """(groups to dispatch at this boundary, carry for the next).

    The level aimed at is (φ + μ)·B̂ outstanding groups; the part below one group is carried, so the mean level has no rounding bias, and so is an
    excess that was outstanding already. The carry never eats into the μ·B̂ groups that the coming burst itself consumes.
    """
    chosen, per_step = state.settings, state.groups_per_step
    if state.steps_left == 0:
        return 0, 0.0
    level = (chosen.extra_depth_steps + chosen.steps_per_publish) * per_step + state.carry
    consumable = state.steps_left * per_step
    target = math.floor(min(level, consumable) + EPSILON_GROUPS)
    need = max(0, target - state.outstanding_groups)
    if consumable < level:  # the end of the run is near: nothing to make up for any more
        return need, 0.0
    left_over = level - max(target, state.outstanding_groups)
    return need, min(1.0, max(left_over, -chosen.extra_depth_steps * per_step))


def groups_wanted(fact: BatchClosed) -> float:
    """Groups that this batch consumed; for one that ran dry, those it would have needed for its turns.

    Without this B̂ could never learn that B was planned too small: no batch can consume more than is outstanding.
    """
    groups = float(len(fact.groups))
    if fact.cause == "exhausted" and 0 < fact.turns < fact.turns_target:
        groups *= min(SHORTFALL_FACTOR_MAX, fact.turns_target / fact.turns)
    return groups


def smoothed(state: State) -> float:
    """B̂ after the burst that has just ended, at least one group."""
    if state.burst_steps == 0:
        return state.groups_per_step
    observed = state.burst_groups / state.burst_steps
    return max(1.0, state.groups_per_step + SMOOTHING * (observed - state.groups_per_step))


def predicted_s(state: State, group_type: str, wall_s: float) -> float:
    """Expected duration of an execution: the mean of its task type, its own wall limit while nothing is known."""
    estimate = state.estimates.get(group_type)
    return estimate.mean_s if estimate else wall_s


def promotions(state: State, group: Group, now_s: float) -> int:
    """Tiers by which waiting has raised the group."""
    return max(0, int((now_s - group.submitted_at_s) / state.settings.aging_s))


def in_order(state: State, now_s: float) -> list[Group]:
    """The queue as it would be sent: tier raised by waiting, then longest predicted first (if so configured), then first come.

    Promotions are not bounded by the number of tiers: a group is overtaken only by what was submitted before, or within tiers · aging_s after it.
    """

    def rank(group: Group) -> tuple[int, float, str]:
        raised = state.settings.tier_index(group.tier) - promotions(state, group, now_s)
        if state.settings.order == "submitted":
            return raised, 0.0, group.group_id
        return raised, -predicted_s(state, group.task.task_type, group.task.limits.wall_s), group.group_id

    return sorted(state.queue.values(), key=rank)


def select(state: State, now_s: float) -> list[Group]:
    """Groups to be sent now: every evaluation, and train groups up to the boundary's need, inside their tiers' caps.

    What could not be sent at the boundary (nothing queued, tier full) follows later under the same policy version; once a cell has been released
    in this burst only what the remaining cells can hold at once.
    """
    chosen = list(state.evaluations.values())
    if state.need == 0 or not state.queue:
        return chosen
    room = state.capacity - state.waterlevel - sum(group.task.group_size for group in chosen)
    is_late = any(cell.target == "training" and cell.boundary == state.boundaries for cell in state.cells.values())
    active = state.active_by_tier.copy()
    need = state.need
    for group in in_order(state, now_s):
        if need == 0:
            break
        size = group.task.group_size
        cap = state.settings.tier(group.tier).concurrency_max
        if (active[group.tier] and active[group.tier] + size > cap) or (is_late and size > room):
            continue
        chosen.append(group)
        active[group.tier] += size
        room -= size
        need -= 1
    return chosen


def dispatched(state: State, group: Group, now_s: float) -> GroupDispatched:
    """The fact that sends a group."""
    return GroupDispatched(
        group_id=group.group_id, task_type=group.task.task_type, tenant=group.task.tenant, purpose=group.task.purpose, tier=group.tier,
        execution_ids=[execution_id(group.group_id, member) for member in range(group.task.group_size)],
        policy_version=state.published_version, queue_wait_s=max(0.0, now_s - group.submitted_at_s),
        promotions=promotions(state, group, now_s), at_s=now_s, fingerprint=state.settings.fingerprint,
    )  # fmt: skip


def task(state: State, group: Group, member: int, policy_version: int, at_s: float) -> TaskDispatched:
    """The work-queue message of one execution; the same whenever it is made again."""
    return TaskDispatched(
        execution_id=execution_id(group.group_id, member), group_id=group.group_id, member=member, task=group.task, tier=group.tier,
        policy_version=policy_version, seed=seed_for(state.settings.run_seed, group.group_id, member), attempt_base=group.attempt_base,
        fingerprint=state.settings.fingerprint, dispatched_at_s=at_s,
    )  # fmt: skip

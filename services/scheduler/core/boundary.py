"""Boundaries (A4): when a burst opens, how much is dispatched for it, what its size is learned from. The law and its proof: docs/staleness.md."""

import math

from gyre.records import BatchClosed, BurstOpened
from services.scheduler.core import roles
from services.scheduler.core.state import State

SMOOTHING = 0.25
"""Weight of the newest burst in B̂: a memory of four bursts. Any value keeps the law of the mean, whose error is |B̂ − B|/(SMOOTHING · bursts);
larger ones follow a drifting workload sooner and pass more of its noise on to the depth of dispatch."""
SHORTFALL_FACTOR_MAX = 2.0
"""A batch that ran dry raises B̂ by at most this factor of what it had."""
EPSILON_GROUPS = 1e-9
"""Keeps 3 · 0.1 · 10 groups from being 2 by floating point."""


def is_due(state: State) -> bool:
    """A publish (or the start) has ended what was before, steps are left, and nothing has been decided for them."""
    return state.steps_left > 0 and state.opened_step < state.published_version


def opened(state: State, now_s: float) -> BurstOpened:
    """The decision, by the facts up to here: a pure function of the state, so that it is taken once whoever takes it."""
    knobs = state.planned
    need, carry = need_groups(state)
    return BurstOpened(
        burst=state.bursts, first_step=state.published_version, steps=min(knobs.steps_per_publish, state.steps_left),
        need_groups=need, carry_groups=carry, core_stays=roles.core_stays(state, need), at_s=now_s,
        extra_depth_steps=knobs.extra_depth_steps, release_share=knobs.release_share, is_two_way=knobs.is_two_way,
    )  # fmt: skip


def need_groups(state: State) -> tuple[int, float]:
    """(groups to dispatch at this boundary, carry for the next).

    The level aimed at is (φ + μ)·B̂ outstanding groups; the part below one group is carried, so the mean level has no rounding bias, and so is an
    excess that was outstanding already. The carry never eats into the μ·B̂ groups that the coming burst itself consumes.
    """
    knobs, per_step = state.planned, state.groups_per_step
    level = (knobs.extra_depth_steps + knobs.steps_per_publish) * per_step + state.carry
    consumable = state.steps_left * per_step
    target = math.floor(min(level, consumable) + EPSILON_GROUPS)
    need = max(0, target - state.outstanding_groups)
    if consumable < level:  # the end of the run is near: nothing to make up for any more
        return need, 0.0
    left_over = level - max(target, state.outstanding_groups)
    return need, min(1.0, max(left_over, -knobs.extra_depth_steps * per_step))


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

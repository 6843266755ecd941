"""elastic_plus, two way (A3): cells go where the work is, also back inside a burst. One move at a time, core first in, last joined first out.

The number of cells in training is k = K − ⌈w/(ρ·C_e)⌉, and 0 while there is nothing to train. One move at a time makes of it: the next goes in when
w ≤ ρ·(C_R − C_e), the last comes back when w > ρ·C_R or when the trainers have nothing to do. As ρ ≤ 1 the slots always hold what runs.

A cell that has come out for want of work stays out for HYSTERESIS round trips, else it would spend its time on the way: what it
can do in training in a shorter visit is less than what the visit costs. (A round trip of 8.52 + 3.46 s gives the 18 s that did best in simulation.)
"""

from services.scheduler.core import dispatch
from services.scheduler.core.roles import waterlevel, work
from services.scheduler.core.state import State

HYSTERESIS = 1.5
"""Round trips, as measured on this very cluster."""


def moves(state: State, now_s: float) -> list[tuple[str, str]]:
    """The next way back, or else the next way in."""
    if (name := _due_return(state, now_s)) is not None:
        return [(name, "rollout")]
    if (name := _due_release(state, now_s)) is not None:
        return [(name, "training")]
    return []


def core_stays(state: State, need: int) -> bool:
    """There is something to train, and the other cells hold, at ρ, all that runs and is about to be sent."""
    without_core = state.fleet.rollout_capacity - state.fleet.core.capacity
    return state.ready_groups > 0 and work.unfinished_with(state, need) <= state.planned.release_share * without_core


def _due_return(state: State, now_s: float) -> str | None:
    fleet = state.fleet
    if not fleet.training:
        return None
    must = fleet.core.is_lost or not state.is_burst_open or (fleet.core.burst < state.burst and not state.core_stays)
    is_needed = state.waterlevel > state.knobs.release_share * state.capacity
    return fleet.names[fleet.training[-1]] if must or is_needed or not _has_work(state, now_s) else None


def _due_release(state: State, now_s: float) -> str | None:
    position = waterlevel.next_in(state)
    if position is None or not work.burst_has_sent(state):
        return None
    cell = state.fleet.at(position)
    if state.waterlevel > state.knobs.release_share * (state.capacity - cell.capacity):
        return None
    is_rested = now_s - cell.at_s >= HYSTERESIS * state.fleet.switch_cost_s() or cell.burst < state.burst
    return state.fleet.names[position] if is_rested and _has_work(state, now_s) else None


def _has_work(state: State, now_s: float) -> bool:
    """Something to train now: a batch that is complete or about to be, a ready group, or an open batch that is not worked off."""
    if state.is_in_step and (state.closed_step >= state.steps_done or state.untaken_groups == 0):
        return True
    if dispatch.is_dry(state):
        return True
    if not state.settings.streaming:
        return work.batch_is_ready(state, dispatch.groups_due(state))
    can_take = state.steps_done < state.burst_end and state.ready_groups > 0
    return can_take or state.pace.left_at_s(now_s) > 0.0

"""hybrid_switch (A9): trainers are lent to rollout while that pays; the policy of verl's `separate_async` with switching.

The elastic cells train by default, all as one, beside standalone cells that never do. At a step's end they are lent if fewer groups are ready than
clamp(round(r·μ·B), B, μ·B), in verl's words a share of the batch and at least one mini-batch, and if the time that lending saves exceeds what
going there and back has cost of late. They return when that many groups are ready. r adapts to idle and calm steps (pace.py).
"""

from services.scheduler.core import dispatch
from services.scheduler.core.roles import work
from services.scheduler.core.state import State


def moves(state: State, now_s: float) -> list[tuple[str, str]]:
    """Every elastic cell at once, or none."""
    fleet = state.fleet
    if fleet.training and not (
        _should_train(state, now_s) if fleet.core.target == "training" else _should_return(state)
    ):
        return [(fleet.names[position], "rollout") for position in fleet.training]
    if fleet.core.target != "training" and _should_return(state):
        return [(fleet.names[position], "training") for position in fleet.serving]
    return []


def core_stays(state: State, need: int) -> bool:
    """Enough is ready, or lending would not pay. With nothing to wait for it would train empty steps to the end of the run."""
    if state.untaken_groups + min(need, len(state.queue.groups)) == 0:
        return False
    return _is_enough(state, need) or _saved_s(state, need) <= state.fleet.switch_cost_s()


def _should_train(state: State, now_s: float) -> bool:
    if state.fleet.core.is_lost or not state.is_burst_open:
        return False
    if not work.core_may_begin(state) or work.is_stuck(state, now_s):
        return False
    has_stayed = state.fleet.core.burst < state.burst and state.steps_done == state.opened_step
    return (
        state.is_in_step
        or has_stayed
        or _is_enough(state, dispatch.groups_due(state))
        or _saved_s(state, dispatch.groups_due(state)) <= state.fleet.switch_cost_s()
    )


def _should_return(state: State) -> bool:
    if state.fleet.core.is_lost or not work.burst_has_sent(state):
        return False
    if state.was_in_vain and state.waterlevel > state.fleet.standalone_capacity:
        return False
    return dispatch.is_dry(state) or _is_enough(state, dispatch.groups_due(state))


def _is_enough(state: State, need: int) -> bool:
    return work.batch_is_ready(state, need) and _missing_groups(state, need) <= 0


def _missing_groups(state: State, need: int) -> float:
    """Groups that are not ready and should be before trainers train; never more than can still come."""
    step = state.groups_per_step
    steps = max(1, state.burst_end - state.steps_done)
    wanted = min(max(round(state.pace.lending_ratio * steps * step), step), steps * step)
    return min(wanted, state.untaken_groups + min(need, len(state.queue.groups))) - state.ready_groups


def _saved_s(state: State, need: int) -> float:
    """How much sooner the missing groups would be ready with the lent cells: work over the executions that are served at a time."""
    unfinished = work.unfinished_with(state, need)
    executions = max(0.0, _missing_groups(state, need)) * state.dispatched / max(1, state.dispatched_groups)
    without, lent = min(unfinished, state.fleet.standalone_capacity), min(unfinished, state.fleet.rollout_capacity)
    if executions == 0.0 or lent == 0:
        return 0.0
    if without == 0 or state.pace.execution_s == 0.0:
        return float("inf")
    return executions * state.pace.execution_s * (1.0 / without - 1.0 / lent)

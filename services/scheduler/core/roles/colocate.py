"""colocate (A9): all elastic cells train together or serve together.

They train when a whole batch is ready for the next step; with streaming and standalone cells also as soon as anything is ready and the
standalone cells hold every unfinished execution. At a step's end they go back, unless the same holds for the next step.
"""

from services.scheduler.core import dispatch
from services.scheduler.core.roles import work
from services.scheduler.core.state import State


def moves(state: State, now_s: float) -> list[tuple[str, str]]:
    """Every elastic cell at once, or none."""
    fleet = state.fleet
    wanted = _should_train(state, now_s)
    if fleet.training and not wanted:
        return [(fleet.names[position], "rollout") for position in fleet.training]
    if fleet.core.target != "training" and wanted:  # a cell that was lost may have missed the last move
        return [(fleet.names[position], "training") for position in fleet.serving]
    return []


def core_stays(state: State, need: int) -> bool:
    """The next step could begin at once."""
    return _is_worth_training(state, need, work.unfinished_with(state, need))


def _should_train(state: State, now_s: float) -> bool:
    if state.fleet.core.is_lost or not state.is_burst_open:
        return False
    if state.fleet.core.target == "training":
        if not work.core_may_begin(state) or work.is_stuck(state, now_s):
            return False
        if state.is_in_step:
            return True
    return _is_worth_training(state, dispatch.groups_due(state), state.waterlevel) or (
        work.burst_has_sent(state) and dispatch.is_dry(state)
    )


def _is_worth_training(state: State, need: int, unfinished: int) -> bool:
    # After a visit in vain the pool serves until nothing waits for it, so that it cannot go to and fro for ever.
    if state.was_in_vain and unfinished > state.fleet.standalone_capacity:
        return False
    if work.batch_is_ready(state, need):
        return True
    holds = 0 < unfinished <= state.fleet.standalone_capacity
    return state.settings.streaming and state.ready_groups > 0 and holds

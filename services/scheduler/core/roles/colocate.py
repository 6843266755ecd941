"""colocate (A9): all elastic cells train together or serve together.

They train when a whole batch is ready for the next step; with streaming and standalone cells also as soon as anything is ready and the
standalone cells hold every unfinished execution. At a step's end they go back, unless the same holds for the next step.
"""

from services.scheduler.core.roles import work
from services.scheduler.core.state import State


def moves(state: State, now_s: float) -> list[tuple[str, str]]:
    """Every elastic cell at once, or none."""
    fleet = state.fleet
    wanted = _should_train(state)
    if fleet.training and not wanted:
        return [(fleet.names[position], "rollout") for position in fleet.training]
    if not fleet.training and wanted:
        return [(fleet.names[position], "training") for position in fleet.serving]
    return []


def core_stays(state: State, need: int) -> bool:
    """The next step could begin at once."""
    return _is_worth_training(state, need, work.unfinished_with(state, need))


def _should_train(state: State) -> bool:
    if state.fleet.core.is_lost or not state.is_burst_open:
        return False
    if state.fleet.training and state.is_in_step:
        return not is_stuck(state)
    return _is_worth_training(state, state.need, state.waterlevel) or (
        work.burst_has_sent(state) and work.is_dry(state)
    )


def _is_worth_training(state: State, need: int, unfinished: int) -> bool:
    if work.batch_is_ready(state, need):
        return True
    holds = 0 < unfinished <= state.fleet.standalone_capacity
    return state.settings.streaming and state.ready_groups > 0 and holds


def is_stuck(state: State) -> bool:
    """The batch wants more than was ready, and nobody serves those who would bring it: without this the step would never end."""
    wants_more = state.closed_step < state.steps_done and state.untaken_groups > 0 and state.ready_groups == 0
    return wants_more and state.capacity == 0

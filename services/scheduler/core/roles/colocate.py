"""colocate (A9): all elastic cells train together or serve together.

They train when a whole batch is ready for the next step; with streaming and standalone cells also as soon as anything is ready and the
standalone cells hold every unfinished execution. At a step's end they go back, unless the same holds for the next step.
"""

from services.scheduler.core import dispatch
from services.scheduler.core.roles import work
from services.scheduler.core.state import State

PATIENCE_S = 10.0
"""A batch begins at once when the core is there and its data is; for what has not begun by then something is missing."""
SETTLE_S = 1.0
"""A batch that took its last ready group is closed at once if that completes it, but by a fact of its own."""


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
    if state.fleet.core.target == "training" and (state.is_in_step or is_stuck(state, now_s)):
        return not is_stuck(state, now_s)
    return _is_worth_training(state, dispatch.groups_due(state), state.waterlevel) or (
        work.burst_has_sent(state) and work.is_dry(state)
    )


def _is_worth_training(state: State, need: int, unfinished: int) -> bool:
    if state.was_in_vain and unfinished > state.fleet.standalone_capacity:
        return False
    if work.batch_is_ready(state, need):
        return True
    holds = 0 < unfinished <= state.fleet.standalone_capacity
    return state.settings.streaming and state.ready_groups > 0 and holds


def is_stuck(state: State, now_s: float) -> bool:
    """The batch wants more than is ready, and nobody serves those who would bring it: without this the step would never end.

    Batches are complete by turns and B̂ is only what they took of late. After a visit in vain the pool stays in rollout until nothing
    waits for it, so that it cannot go to and fro for ever.
    """
    if state.capacity > 0 or state.waterlevel == 0 or state.closed_step >= state.steps_done:
        return False
    if state.is_in_step:
        # Without streaming a batch is whole when it begins; with it, the word that it is complete may be on its way.
        return state.settings.streaming and state.ready_groups == 0 and now_s - state.pace.at_s > SETTLE_S
    return now_s - state.fleet.core.at_s > PATIENCE_S

"""What the rules ask about work: what is there to train, and what is about to be sent."""

from itertools import islice

from services.scheduler.core import dispatch
from services.scheduler.core.state import State

PATIENCE_S = 10.0
"""What is ready is taken at once when the core is there; what has not been by then does not suffice."""
SETTLE_S = 1.0
"""A batch that took its last ready group is closed at once if that completes it, but by a fact of its own."""


def batch_is_ready(state: State, need: int) -> bool:
    """Whether a step could be trained to its end without waiting: B̂ groups (less what its batch has already), or all that can still come.

    `need`: groups about to be dispatched, as far as any wait: a batch that takes all there is would wait for them too.
    """
    if state.is_in_step and state.closed_step >= state.steps_done:
        return True
    still_to_come = state.untaken_groups + min(need, len(state.queue.groups))
    taken = state.outstanding_groups - state.untaken_groups
    if state.is_in_step and still_to_come == 0:
        return True
    missing = max(1.0, state.groups_per_step - taken) if state.is_in_step else state.groups_per_step
    return 0 < min(missing, still_to_come) <= state.ready_groups


def burst_has_sent(state: State) -> bool:
    """Steps are left and the boundary has sent what it could: all, or all there was."""
    return state.is_burst_open and (dispatch.groups_due(state) == 0 or not state.queue.groups)


def core_may_begin(state: State) -> bool:
    """It was asked for in this burst, or told at the boundary to stay. Any other core opens no step, whatever has become ready since: it has to
    come back first."""
    return state.fleet.core.burst >= state.burst or state.core_stays


def is_stuck(state: State, now_s: float) -> bool:
    """The batch wants more than is ready, and nobody serves those who would bring it: without this the step would never end.

    Batches are complete by turns and B̂ is only what they took of late; and cells are lost, or all train when continuous dispatch sends more.
    """
    is_waiting = state.closed_step < state.steps_done < state.burst_end
    if state.capacity > 0 or state.waterlevel == 0 or not is_waiting:
        return False
    return now_s - state.pace.at_s > (PATIENCE_S if state.ready_groups else SETTLE_S)


def last_batch_is_open(state: State) -> bool:
    """Micro-steps of this burst may still come: its last batch is not complete, and some group is in no batch yet."""
    return state.closed_step < state.burst_end - 1 and state.untaken_groups > 0


def unfinished_with(state: State, need: int) -> int:
    """w once `need` more groups and the evaluations for which there is room are sent, executions."""
    room = state.evaluations.room(state.settings, is_training=False)  # the boundary's bound begins anew
    evaluations = min(state.evaluations.num_waiting, max(0, room))
    return state.waterlevel + evaluations + sum(group.size for group in islice(dispatch.in_order(state), need))

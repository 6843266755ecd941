"""What the rules ask about work: what is there to train, and what is about to be sent."""

from itertools import islice

from services.scheduler.core import dispatch
from services.scheduler.core.state import State


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


def is_dry(state: State) -> bool:
    """Nothing is left to train in a burst that has begun (all was dropped, or its first steps took more than planned): its steps must be opened all
    the same, to be closed without gradient, or the next boundary would never come."""
    has_begun = state.sent_groups > 0 or state.steps_done > state.opened_step
    return state.outstanding_groups == 0 and has_begun and state.steps_done < state.burst_end


def last_batch_is_open(state: State) -> bool:
    """Micro-steps of this burst may still come: its last batch is not complete, and some group is in no batch yet."""
    return state.closed_step < state.burst_end - 1 and state.untaken_groups > 0


def unfinished_with(state: State, need: int) -> int:
    """w once `need` more groups and the waiting evaluations are sent, executions."""
    unsent = [*islice(dispatch.in_order(state), need), *state.evaluations.values()]
    return state.waterlevel + sum(group.size for group in unsent)

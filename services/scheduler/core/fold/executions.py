"""Executions from lease to sample."""

from gyre import records as r
from gyre.records.lifecycle import ENDED, FINAL, ExecutionState
from services.scheduler.core.estimate import Estimate
from services.scheduler.core.fold.moves import close_if_over, move, speaking
from services.scheduler.core.groups import ACTIVE, TAKEN, Execution, Group
from services.scheduler.core.history import Ended
from services.scheduler.core.state import State

_S = ExecutionState
_ENDINGS = {str(state): state for state in ENDED}
_STARTABLE = frozenset({_S.QUEUED, _S.LEASED})
TYPES_MAX = 4096
"""Task types of which durations are remembered, the ones first seen last: with a type for each task none is ever learned, and all would be kept."""


def _leased(state: State, fact: r.ExecutionLeased) -> None:
    group, execution = speaking(state, fact.group_id, fact.execution_id, fact.attempt)
    if group is None or execution.attempt == fact.attempt:  # the same attempt going on at another gateway
        return
    if move(state, group, execution, _S.LEASED):
        execution.attempt = fact.attempt


def _started(state: State, fact: r.ExecutionStarted) -> None:
    group, execution = speaking(state, fact.group_id, fact.execution_id, fact.attempt)
    if group is not None and execution.state in _STARTABLE and move(state, group, execution, _S.RUNNING):
        state.history.to(fact.at_s, state.waterlevel, state.capacity)
        execution.bands_s = tuple(state.history.passed_s)


def _commanded(state: State, fact: r.ExecutionCommanded) -> None:
    """Only numbered here; the gateway carries it out, and what it did is told by facts of their own. A person's command goes before a policy's."""
    group = state.groups.get(fact.group_id)
    execution = group.executions.get(fact.execution_id) if group else None
    if execution is not None and fact.ordinal > execution.commanded:
        execution.commanded, execution.command = fact.ordinal, fact.command
        state.late.pop(fact.execution_id, None)


def _suspended(state: State, fact: r.ExecutionSuspended) -> None:
    _obey(state, fact, _S.RUNNING, _S.SUSPENDED)


def _resumed(state: State, fact: r.ExecutionResumed) -> None:
    _obey(state, fact, _S.SUSPENDED, _S.RUNNING)


def _obey(
    state: State, fact: r.ExecutionSuspended | r.ExecutionResumed, was: ExecutionState, to: ExecutionState
) -> None:
    """A suspended execution still counts as unfinished and keeps its attempt; an older command than the last one obeyed is a repeat."""
    group, execution = speaking(state, fact.group_id, fact.execution_id, fact.attempt)
    if group is None or fact.ordinal <= execution.obeyed:
        return
    execution.obeyed = fact.ordinal
    if execution.state is was:
        move(state, group, execution, to)


def _ended(state: State, fact: r.ExecutionEnded) -> None:
    group, execution = speaking(state, fact.group_id, fact.execution_id, fact.attempt)
    if group is None or execution.state not in ACTIVE:
        return
    if not move(state, group, execution, _ENDINGS[fact.ending]):
        return
    execution.attempt = fact.attempt
    state.late.pop(fact.execution_id, None)
    state.history.to(fact.at_s, state.waterlevel, state.capacity)
    if fact.ending in ("completed", "timed_out") and fact.occupancy_s > 0:
        if fact.reason != "truncated":  # a length that a batch chose says nothing of the task
            _learn(state, fact)
        state.pace.lasted(fact.occupancy_s)
        _remember(state, execution, fact)
    if group.num_active == 0:
        if group.is_trained:
            state.history.remember(_ended_group(group, fact.task_type))
        close_if_over(state, group)


def _learn(state: State, fact: r.ExecutionEnded) -> None:
    """How long executions of its type last."""
    estimate = state.estimates.get(fact.task_type)
    if estimate is None:
        estimate = state.estimates[fact.task_type] = Estimate()
        if len(state.estimates) > TYPES_MAX:
            del state.estimates[next(iter(state.estimates))]
    estimate.learn(fact.occupancy_s)


def _remember(state: State, execution: Execution, fact: r.ExecutionEnded) -> None:
    """Its work, and the loads that it met."""
    execution.tokens, execution.was_cut = fact.tokens_sampled, fact.ending == "timed_out"
    if execution.bands_s:
        state.history.ran(fact.tokens_sampled, execution.bands_s)
        execution.bands_s = ()


def _ended_group(group: Group, task_type: str) -> Ended:
    known = [execution for execution in group.executions.values() if execution.tokens > 0]
    return Ended(
        task_type,
        [execution.tokens for execution in known],
        [execution.was_cut for execution in known],
        group.task.limits.wall_s,
    )


def _sample_ready(state: State, fact: r.SampleReady) -> None:
    group, execution = speaking(state, fact.group_id, fact.execution_id, fact.attempt)
    if group is not None and execution.state is not _S.READY and execution.state not in TAKEN:
        _ = move(state, group, execution, _S.EVALUATED) and move(state, group, execution, _S.READY)


def _sample_dropped(state: State, fact: r.SampleDropped) -> None:
    group, execution = speaking(state, fact.group_id, fact.execution_id, fact.attempt)
    if group is None or execution.state in FINAL:
        return
    if fact.reason == "duplicate":  # of something that goes on under another delivery
        return
    if move(state, group, execution, _S.DROPPED):
        execution.attempt = fact.attempt
        close_if_over(state, group)


HANDLERS = {
    r.ExecutionLeased: _leased,
    r.ExecutionStarted: _started,
    r.ExecutionCommanded: _commanded,
    r.ExecutionSuspended: _suspended,
    r.ExecutionResumed: _resumed,
    r.ExecutionEnded: _ended,
    r.SampleReady: _sample_ready,
    r.SampleDropped: _sample_dropped,
}

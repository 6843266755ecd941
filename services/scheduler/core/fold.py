"""Facts → state. One function a fact type; a repeat of a fact changes nothing; executions move by lifecycle's table only.

Fencing: an attempt speaks for its execution only while it is the newest that was leased, and, once the execution has ended, only the attempt that
ended it. What others say is counted (`fenced`) and changes nothing.
"""

from collections.abc import Callable
from typing import Any

from gyre import records as r
from gyre.ids import split_sample_id
from gyre.records.lifecycle import FINAL, ExecutionState, advance
from services.scheduler.core import dispatch, waterlevel
from services.scheduler.core.types import ACTIVE, Estimate, Execution, Group, State

_S = ExecutionState

ESTIMATE_EXECUTIONS_MAX = 64
"""Memory of the duration estimate: beyond this many executions the mean is exponential and follows a drifting workload."""


def apply(state: State, fact: Any) -> State:
    """Fold one fact, in place; facts of types that do not concern the scheduler change nothing."""
    handler = _HANDLERS.get(type(fact))
    if handler is not None:
        handler(state, fact)
    return state


# Tasks and groups


def _run_started(state: State, fact: r.RunStarted) -> None:
    if fact.steps <= state.steps_wanted:
        return
    was_idle = state.steps_left == 0
    state.steps_wanted = fact.steps
    if was_idle:  # inside a burst the next publish is the next boundary, and sees the new end
        state.started_at_s = fact.at_s
        _boundary(state, fact.at_s)


def _group_submitted(state: State, fact: r.GroupSubmitted) -> None:
    if fact.task.task_id in state.group_of_task:
        return
    state.group_of_task[fact.task.task_id] = fact.group_id
    group = Group(group_id=fact.group_id, task=fact.task, tier=fact.tier, submitted_at_s=fact.at_s)
    (state.queue if group.is_trained else state.evaluations)[fact.group_id] = group


def _group_dispatched(state: State, fact: r.GroupDispatched) -> None:
    group = state.queue.pop(fact.group_id, None) or state.evaluations.pop(fact.group_id, None)
    if group is None:
        return
    group.policy_version = fact.policy_version
    group.dispatched_at_s = fact.at_s
    group.attempt_base = fact.attempt_base
    group.executions = {execution: Execution() for execution in fact.execution_ids}
    state.groups[group.group_id] = group
    state.dispatched += len(group.executions)
    state.active_by_tier[group.tier] += len(group.executions)
    state.executions_by_state[_S.QUEUED] += len(group.executions)
    state.promotions += fact.promotions
    if group.is_trained:
        state.outstanding_groups += 1
        state.sent_groups += 1
        state.need = max(0, state.need - 1)


# Executions and samples


def _leased(state: State, fact: r.ExecutionLeased) -> None:
    group, execution = _speaking(state, fact.execution_id, fact.attempt)
    if group is None or execution.attempt == fact.attempt:  # the same attempt going on at another gateway
        return
    if _move(state, group, execution, _S.LEASED):
        execution.attempt = fact.attempt


def _started(state: State, fact: r.ExecutionStarted) -> None:
    group, execution = _speaking(state, fact.execution_id, fact.attempt)
    if group is not None and execution.state in ACTIVE and execution.state != _S.RUNNING:
        _move(state, group, execution, _S.RUNNING)


def _ended(state: State, fact: r.ExecutionEnded) -> None:
    group, execution = _speaking(state, fact.execution_id, fact.attempt)
    if group is None or execution.state not in ACTIVE:
        return
    if not _move(state, group, execution, _S(fact.ending)):
        return
    execution.attempt = fact.attempt
    if fact.ending in ("completed", "timed_out") and fact.occupancy_s > 0:
        _learn(state.estimates.setdefault(fact.task_type, Estimate()), fact.occupancy_s)
    _close_if_final(state, group)


def _sample_ready(state: State, fact: r.SampleReady) -> None:
    group, execution = _speaking(state, fact.execution_id, fact.attempt)
    if group is not None and execution.state not in (_S.READY, _S.CLAIMED, *FINAL):
        _ = _move(state, group, execution, _S.EVALUATED) and _move(state, group, execution, _S.READY)


def _sample_dropped(state: State, fact: r.SampleDropped) -> None:
    group, execution = _speaking(state, fact.execution_id, fact.attempt)
    if group is None or execution.state in FINAL:
        return
    if fact.reason == "duplicate":  # of something that goes on under another delivery
        return
    if _move(state, group, execution, _S.DROPPED):
        execution.attempt = fact.attempt
        _close_if_final(state, group)


def _batch_extended(state: State, fact: r.BatchExtended) -> None:
    for group, execution in _of_samples(state, fact.sample_ids):
        if execution.state not in (_S.CLAIMED, *FINAL):
            _move(state, group, execution, _S.CLAIMED)


def _batch_closed(state: State, fact: r.BatchClosed) -> None:
    if fact.step <= state.closed_step:
        return
    state.closed_step = fact.step
    state.batches[fact.step] = fact.sample_ids
    if fact.groups:
        state.burst_groups += dispatch.groups_wanted(fact)
        state.burst_steps += 1


def _step_updated(state: State, fact: r.StepUpdated) -> None:
    """Trained: what gave a gradient, and what the batch counted in its divisor (a sample with zero advantage has no gradient)."""
    state.steps_done = max(state.steps_done, fact.version)
    batch = state.batches.pop(fact.step, [])
    for group, execution in _of_samples(state, dict.fromkeys([*fact.sample_ids, *batch])):
        if execution.state in FINAL:
            continue
        if execution.state == _S.CLAIMED or _move(state, group, execution, _S.CLAIMED):
            _move(state, group, execution, _S.TRAINED)
            _close_if_final(state, group)


# Cells and boundaries


def _role_changed(state: State, fact: r.RoleChanged) -> None:
    cell = state.cells.get(fact.cell)
    if cell is None or fact.change < cell.change:
        return
    phases = r.CELL_PHASES[fact.target]
    if fact.change == cell.change and phases.index(fact.phase) <= phases.index(cell.phase):
        return
    if fact.change > cell.change:
        cell.boundary = state.boundaries
    cell.change, cell.target, cell.phase, cell.at_s = fact.change, fact.target, fact.phase, fact.at_s


def _weights_published(state: State, fact: r.WeightsPublished) -> None:
    if fact.version <= state.published_version:
        return
    state.published_version = fact.version
    state.steps_done = max(state.steps_done, fact.version)
    state.groups_per_step = dispatch.smoothed(state)
    state.burst_groups, state.burst_steps = 0.0, 0
    _boundary(state, fact.at_s)


def _boundary(state: State, at_s: float) -> None:
    """How much to dispatch and whether the core stays are settled here, by the facts up to the publish and nothing later."""
    state.boundaries += 1
    state.boundary_at_s = at_s
    state.sent_groups = 0
    state.need, state.carry = dispatch.boundary_need(state)
    state.core_stays = waterlevel.core_stays(state, at_s)


def _alarm_raised(state: State, fact: r.AlarmRaised) -> None:
    if fact.service == "scheduler":
        state.alarms[fact.kind] = max(fact.at_s, state.alarms.get(fact.kind, fact.at_s))


# Helpers


def _speaking(state: State, execution_id: str, attempt: int) -> tuple[Group, Execution] | tuple[None, None]:
    """The execution that this attempt may speak for; (None, None) when it is unknown, closed or fenced."""
    group = state.groups.get(execution_id.rpartition("-e")[0])
    execution = group.executions.get(execution_id) if group else None
    if group is None or execution is None:
        return None, None
    if attempt < execution.attempt or (attempt > execution.attempt and execution.state not in ACTIVE):
        state.fenced += 1
        return None, None
    return group, execution


def _of_samples(state: State, sample_ids) -> list[tuple[Group, Execution]]:
    found = [_speaking(state, *split_sample_id(sample)) for sample in sample_ids]
    return [(group, execution) for group, execution in found if group is not None]


def _move(state: State, group: Group, execution: Execution, to: ExecutionState) -> bool:
    was = execution.state
    if not advance(was, to):
        state.refused[f"{was}->{to}"] += 1
        return False
    execution.state = to
    state.executions_by_state[was] -= 1
    state.executions_by_state[to] += 1
    if was in ACTIVE and to not in ACTIVE:
        state.finished += 1
        state.active_by_tier[group.tier] -= 1
    return True


def _close_if_final(state: State, group: Group) -> None:
    """Forget a group when nothing more can happen to it, so that memory is bounded by what is in flight.

    A train group when each member is trained or dropped; an evaluation group, which nobody trains, when each has ended.
    """
    members = group.executions.values()
    if group.is_trained and all(member.state in FINAL for member in members):
        state.outstanding_groups -= 1
    elif group.is_trained or any(member.state in ACTIVE for member in members):
        return
    del state.groups[group.group_id]


def _learn(estimate: Estimate, lasted_s: float) -> None:
    estimate.executions += 1
    estimate.mean_s += (lasted_s - estimate.mean_s) / min(estimate.executions, ESTIMATE_EXECUTIONS_MAX)


_HANDLERS: dict[type, Callable[[State, Any], None]] = {
    r.RunStarted: _run_started,
    r.GroupSubmitted: _group_submitted,
    r.GroupDispatched: _group_dispatched,
    r.ExecutionLeased: _leased,
    r.ExecutionStarted: _started,
    r.ExecutionEnded: _ended,
    r.SampleReady: _sample_ready,
    r.SampleDropped: _sample_dropped,
    r.BatchExtended: _batch_extended,
    r.BatchClosed: _batch_closed,
    r.StepUpdated: _step_updated,
    r.RoleChanged: _role_changed,
    r.WeightsPublished: _weights_published,
    r.AlarmRaised: _alarm_raised,
}

FOLDED: tuple[type, ...] = tuple(_HANDLERS)
"""The fact types that the scheduler follows."""

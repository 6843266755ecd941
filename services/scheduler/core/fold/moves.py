"""How an execution moves: by lifecycle's table only, by the word of the attempt that counts, with every counter kept.

Fencing: an attempt speaks for its execution only while it is the newest that was leased, and, once the execution has ended, only the attempt that
ended it. What others say is counted (`fenced`) and changes nothing.
"""

from collections.abc import Iterable

from gyre.ids import split_sample_id
from gyre.records.lifecycle import ExecutionState, advance
from services.scheduler.core.groups import ACTIVE, Execution, Group
from services.scheduler.core.state import State, bump


def speaking(state: State, execution_id: str, attempt: int) -> tuple[Group, Execution] | tuple[None, None]:
    """The execution that this attempt may speak for; (None, None) when it is unknown, closed or fenced."""
    group = state.groups.get(execution_id.rpartition("-e")[0])
    execution = group.executions.get(execution_id) if group else None
    if group is None or execution is None:
        return None, None
    if attempt < execution.attempt or (attempt > execution.attempt and execution.state not in ACTIVE):
        state.fenced += 1
        return None, None
    return group, execution


def of_samples(state: State, sample_ids: Iterable[str]) -> list[tuple[Group, Execution]]:
    found = [speaking(state, *split_sample_id(sample)) for sample in sample_ids]
    return [(group, execution) for group, execution in found if group is not None]


def move(state: State, group: Group, execution: Execution, to: ExecutionState) -> bool:
    """Whether the table allowed it."""
    was = execution.state
    if not advance(was, to):
        bump(state.refused, f"{was}->{to}")
        return False
    execution.state = to
    if group.is_trained:
        state.ready_groups -= group.is_ready
        state.untaken_groups -= group.is_untaken
    group.count(was, -1)
    group.count(to, 1)
    if group.is_trained:
        state.ready_groups += group.is_ready
        state.untaken_groups += group.is_untaken
    bump(state.executions_by_state, was, -1)
    bump(state.executions_by_state, to)
    if was in ACTIVE and to not in ACTIVE:
        state.finished += 1
        state.active_by_tier[group.tier] -= 1
    return True


def close_if_over(state: State, group: Group) -> None:
    """Forget a group when nothing more can happen to it, so that memory is bounded by what is in flight.

    A train group when each member is trained or dropped; an evaluation group, which nobody trains, when each has ended.
    """
    if group.is_trained and group.is_final:
        state.outstanding_groups -= 1
    elif group.is_trained or group.num_active:
        return
    del state.groups[group.group_id]

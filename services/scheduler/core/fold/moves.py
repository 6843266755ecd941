"""How an execution moves: by lifecycle's table only, by the word of the attempt that counts, with every counter kept.

Fencing: an attempt speaks for its execution only while it is the newest that was leased, and, once the execution has ended, only the attempt that
ended it. What others say is counted (`fenced`) and changes nothing.
"""

from collections.abc import Iterable

from gyre.ids import split_sample_id
from gyre.records.lifecycle import ExecutionState
from services.scheduler.core.groups import ACTIVE, CHANGES, UNPLACED, Execution, Group
from services.scheduler.core.state import State, bump


def speaking(
    state: State, group_id: str, execution_id: str, attempt: int
) -> tuple[Group, Execution] | tuple[None, None]:
    """The execution that this attempt may speak for; (None, None) when it is unknown, closed or fenced."""
    group = state.groups.get(group_id)
    execution = group.executions.get(execution_id) if group is not None else None
    if group is None or execution is None:
        return None, None
    if attempt == execution.attempt or (attempt > execution.attempt and execution.state in ACTIVE):
        return group, execution
    state.fenced += 1
    return None, None


def of_samples(state: State, sample_ids: Iterable[str]) -> list[tuple[Group, Execution]]:
    found = []
    for sample in sample_ids:
        name, attempt = split_sample_id(sample)
        group, execution = speaking(state, name.rpartition("-e")[0], name, attempt)
        if group is not None:
            found.append((group, execution))
    return found


def move(state: State, group: Group, execution: Execution, to: ExecutionState) -> bool:
    """Whether the table allowed it."""
    change = CHANGES[execution.state].get(to)
    if change is None:
        bump(state.refused, f"{execution.state}->{to}")
        return False
    execution.state = to
    if change:
        active, placed = change
        if active:
            _activate(state, group, active)
        if placed != UNPLACED:
            _place(state, group, *placed)
    return True


def _activate(state: State, group: Group, active: int) -> None:
    group.num_active += active
    state.finished -= active
    state.active_by_tier[group.tier] += active
    if not group.is_trained:
        state.evaluations.changed(group, active)


def _place(state: State, group: Group, ready: int, taken: int, final: int) -> None:
    was = group.standing
    group.num_ready += ready
    group.num_taken += taken
    group.num_final += final
    if (now := group.standing) != was and group.is_trained:
        state.ready_groups += now[0] - was[0]
        state.untaken_groups += now[1] - was[1]


def close_if_over(state: State, group: Group) -> None:
    """Forget a group when nothing more can happen to it, so that memory is bounded by what is in flight.

    A train group when each member is trained or dropped; an evaluation group, which nobody trains, when each has ended.
    """
    if group.is_trained and group.is_final:
        state.outstanding_groups -= 1
    elif group.is_trained or group.num_active:
        return
    del state.groups[group.group_id]
    for execution in group.executions.values():
        bump(state.over, execution.state)

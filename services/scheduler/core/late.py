"""Executions that a batch waited for in vain (C5): the trajectory processor says who, the policy it names says what they are told."""

from gyre.records import BatchOverdue, ExecutionCommanded
from gyre.records.lifecycle import ExecutionState
from services.scheduler.core.groups import ACTIVE, Execution
from services.scheduler.core.state import State

WORDS = {"truncate": "truncate", "drop": "void"}
"""Policy → command; the other policies leave executions alone."""
STARTED = (ExecutionState.RUNNING, ExecutionState.SUSPENDED)
REASON = "not there when its batch's wait was over"
BY = "trajproc"


def remember(state: State, fact: BatchOverdue) -> None:
    """Note who is to be told what. Who has ended, or was told already, is left out."""
    word = WORDS.get(fact.policy)
    if word is None:
        return
    for name in fact.execution_ids:
        execution = _find(state, name)
        if execution is not None and execution.state in ACTIVE and execution.command not in ("void", "truncate"):
            state.late[name] = word


def commands(state: State, now_s: float) -> list[ExecutionCommanded]:
    """What is still to be told. One that has not started has left nothing to be scored: it is voided."""
    found = []
    for name, word in state.late.items():
        execution = _find(state, name)
        if execution is not None and execution.state in ACTIVE:
            word = word if execution.state in STARTED else "void"
            found.append(
                ExecutionCommanded(
                    execution_id=name, group_id=_group(name), ordinal=execution.commanded + 1, command=word, by=BY, reason=REASON,
                    at_s=now_s,
                )
            )  # fmt: skip
    return found


def _group(name: str) -> str:
    return name.rpartition("-e")[0]


def _find(state: State, name: str) -> Execution | None:
    group = state.groups.get(_group(name))
    return group.executions.get(name) if group else None

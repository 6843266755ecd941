"""Commands to executions, checked: which executions are meant, and what each of them can be told now (C2)."""

from collections.abc import Iterable
from dataclasses import dataclass

from gyre.api.scheduler.v1 import scheduler_pb2 as pb
from gyre.errors import Conflict, GyreError, InvalidInput, NotFound
from gyre.records import ExecutionCommanded
from gyre.records.execution import Command
from gyre.records.lifecycle import ExecutionState
from services.scheduler.core import State
from services.scheduler.core.groups import ACTIVE, Execution, Group

IDS_MAX = 10_000
TEXT_CHARS_MAX = 500
COMMANDS: dict[int, Command] = {
    pb.COMMAND_SUSPEND: "suspend",
    pb.COMMAND_RESUME: "resume",
    pb.COMMAND_VOID: "void",
    pb.COMMAND_RELEASE: "release",
    pb.COMMAND_TRUNCATE: "truncate",
}
_S = ExecutionState


@dataclass(frozen=True)
class Meant:
    """One execution that a request is about."""

    group: Group
    execution_id: str
    execution: Execution


def checked(request: pb.CommandExecutionsRequest) -> Command:
    """The command's word. Raises InvalidInput for a request that is wrong as a whole."""
    if request.command not in COMMANDS:
        raise InvalidInput("command is suspend, resume, truncate, void or release")
    if not 1 <= len(request.ids) <= IDS_MAX:
        raise InvalidInput(f"ids names 1 to {IDS_MAX} executions or groups, not {len(request.ids)}")
    if len(request.by) > TEXT_CHARS_MAX or len(request.reason) > TEXT_CHARS_MAX:
        raise InvalidInput(f"by and reason have at most {TEXT_CHARS_MAX} characters")
    return COMMANDS[request.command]


def meant(state: State, name: str) -> list[Meant]:
    """The execution of that name, or the unfinished ones of the group of that name. Raises NotFound, Conflict."""
    group_id, separator, _ = name.rpartition("-e")
    group = state.groups.get(group_id if separator else name)
    if group is None:
        raise _absent(state, group_id if separator else name)
    if separator:
        if name not in group.executions:
            raise NotFound(f"{group_id} has executions {', '.join(list(group.executions)[:20])}")
        return [Meant(group, name, group.executions[name])]
    found = [Meant(group, key, one) for key, one in group.executions.items() if one.state in ACTIVE]
    if not found:
        raise Conflict(f"all executions of {name} have ended; only unfinished ones can be commanded")
    return found


def _absent(state: State, group_id: str) -> GyreError:
    if group_id in state.queue or group_id in state.evaluations:
        return Conflict(f"{group_id} has not been dispatched: it has no executions yet, and waits in the queue")
    if group_id[:1] == "g" and group_id[1:].isdecimal() and int(group_id[1:]) < state.num_submitted:
        return Conflict(f"{group_id} is over: every execution of it was trained or dropped")
    return NotFound(f"there is no {group_id[:80]!r}; executions are named like g000012-e3, groups like g000012")


def command(found: Meant, word: Command, by: str, reason: str, at_s: float) -> ExecutionCommanded:
    """The fact. Raises Conflict when the execution cannot be told this now, saying what it could be told."""
    execution = found.execution
    if execution.state not in ACTIVE:
        raise Conflict(
            f"{found.execution_id} has ended ({execution.state}); only unfinished executions can be commanded"
        )
    problem = _problem(execution, word)
    if problem:
        raise Conflict(f"{found.execution_id} {problem}")
    return ExecutionCommanded(
        execution_id=found.execution_id, group_id=found.group.group_id, ordinal=execution.commanded + 1, command=word, by=by or "operator",
        reason=reason, at_s=at_s,
    )  # fmt: skip


def lost(state: State, facts: Iterable[ExecutionCommanded]) -> dict[str, str]:
    """Execution → why, for those commands whose number another one took in the same moment (a policy's, C5): the stream keeps the first."""
    found = {}
    for fact in facts:
        group = state.groups.get(fact.group_id)
        execution = group.executions.get(fact.execution_id) if group else None
        if execution is not None and execution.commanded == fact.ordinal and execution.command != fact.command:
            found[fact.execution_id] = (
                f"{fact.execution_id} was told to {execution.command} in the same moment; ask again"
            )
    return found


def _problem(execution: Execution, word: Command) -> str:
    """Why not; the newest command is what stands, whether it was carried out already or not."""
    if execution.command == "void":
        return "is being voided; nothing else can be asked of it"
    if execution.command == "truncate" and word != "void":
        return "is being truncated; it can only be voided"
    if word == "truncate" and execution.state in (_S.QUEUED, _S.LEASED):
        return f"is {execution.state}: it has done nothing that could be scored; it can be voided"
    if word == "suspend" and execution.command == "suspend":
        return "is suspended already; it can be resumed, voided or released"
    if word == "resume" and execution.command != "suspend":
        return f"is {execution.state} and not suspended; it can be suspended, voided or released"
    if word == "release" and execution.state is _S.QUEUED:
        return "is queued: it has no attempt to be released, and is given out when an environment is free"
    if word == "release" and execution.command == "release" and execution.state is not _S.RUNNING:
        return "is being released; it is given out again when an environment is free"
    return ""

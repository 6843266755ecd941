"""A group and its executions, with the counts that tell where the group is."""

import msgspec

from gyre.records import TaskSpec
from gyre.records.lifecycle import FINAL, TRANSITIONS, ExecutionState

ACTIVE = frozenset({ExecutionState.QUEUED, ExecutionState.LEASED, ExecutionState.RUNNING, ExecutionState.SUSPENDED})
"""Dispatched and not finished: what the waterlevel counts."""
TAKEN = frozenset({ExecutionState.CLAIMED, *FINAL})
"""In a batch, or past it."""

Change = tuple[int, tuple[int, int, int]]
"""What a transition adds to its group's members that are active; ready, taken, final."""
UNPLACED = (0, 0, 0)


def _change(was: ExecutionState, to: ExecutionState) -> Change | tuple[()]:
    active, ready, taken, final = (
        (to in kind) - (was in kind) for kind in (ACTIVE, {ExecutionState.READY}, TAKEN, FINAL)
    )
    return (active, (ready, taken, final)) if active or ready or taken or final else ()


CHANGES = {was: {to: _change(was, to) for to in following} for was, following in TRANSITIONS.items()}
"""Every transition that the table allows → what it changes; nothing for most, so that they cost nothing."""


class Execution(msgspec.Struct, array_like=True, gc=False):
    """One member of a dispatched group. It holds nothing that could hold it, so the garbage collector need not look at a hundred thousand of them."""

    state: ExecutionState = ExecutionState.QUEUED
    attempt: int = 0
    """Newest attempt that counts; 0 before the first lease."""
    commanded: int = 0
    """Ordinal of the newest command given for it (C2)."""
    obeyed: int = 0
    """Ordinal of the newest command that was carried out."""
    command: str = ""
    """The newest command's word."""
    bands_s: tuple[float, ...] = ()
    """Time that had been spent in each band of load when it started (history.py)."""
    tokens: int = 0
    """Sampled, once it has ended by itself or by its wall limit."""
    was_cut: bool = False
    """By its wall limit."""


class Group(msgspec.Struct):
    """A submitted task; its executions exist from dispatch on."""

    group_id: str
    task: TaskSpec
    tier: str
    submitted_at_s: float
    policy_version: int = -1
    """v_d, −1 before dispatch."""
    dispatched_at_s: float = 0.0
    attempt_base: int = 0
    executions: dict[str, Execution] = {}
    num_active: int = 0
    num_ready: int = 0
    num_taken: int = 0
    num_final: int = 0

    @property
    def is_trained(self) -> bool:
        """Whether its executions are meant for training."""
        return self.task.purpose == "train"

    @property
    def size(self) -> int:
        """N"""
        return self.task.group_size

    @property
    def standing(self) -> tuple[bool, bool]:
        """(ready: every member is ready or dropped, and one at least is ready; untaken: some member is in no batch yet)"""
        size = len(self.executions)
        return 0 < self.num_ready == size - self.num_final, self.num_taken < size

    @property
    def is_final(self) -> bool:
        """Every member is trained or dropped."""
        return self.num_final == len(self.executions)

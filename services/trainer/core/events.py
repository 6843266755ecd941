"""What the step machine hears and what it answers: events and effects as values."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum


class Verdict(Enum):
    """Answer to a claim."""

    COMPUTE = "compute"
    PASS = "pass"
    """Another living cell has it (or its step is not open yet): hand it back, to come again later."""
    DISCARD = "discard"
    """Its step is done or closed without it: acknowledge."""


@dataclass(frozen=True)
class Batch:
    """What BatchClosed says of the step."""

    micro_ids: tuple[str, ...]
    sample_ids: tuple[str, ...]
    divisor: int


# Events


@dataclass(frozen=True)
class Open:
    """The core is in training and may begin the next step; what is on record of its batch already."""

    known: frozenset[str] = frozenset()
    batch: Batch | None = None


@dataclass(frozen=True)
class Extended:
    step: int
    micro_ids: tuple[str, ...]


@dataclass(frozen=True)
class Closed:
    step: int
    batch: Batch


@dataclass(frozen=True)
class Join:
    cell: str


@dataclass(frozen=True)
class Leave:
    """A cell is dead or gone: its stream broke."""

    cell: str


@dataclass(frozen=True)
class Claim:
    cell: str
    micro_id: str
    step: int


@dataclass(frozen=True)
class Computed:
    cell: str
    micro_id: str


@dataclass(frozen=True)
class ReduceEnded:
    round: int
    ok: bool


@dataclass(frozen=True)
class Updated:
    """The optimizer has stepped and the checkpoint is whole."""


@dataclass(frozen=True)
class Dissolve:
    """The burst is over, or the core is asked back: satellites leave; a step that is open begins anew at the next Open."""


Event = Open | Extended | Closed | Join | Leave | Claim | Computed | ReduceEnded | Updated | Dissolve

# Effects


@dataclass(frozen=True)
class SendStep:
    cell: str
    joined: bool
    """The cell was not present in the step before: its join is a fact."""
    mid_batch: bool = False


@dataclass(frozen=True)
class Answer:
    cell: str
    micro_id: str
    verdict: Verdict


@dataclass(frozen=True)
class Reduce:
    round: int
    cells: tuple[str, ...]


@dataclass(frozen=True)
class Update:
    """Divide, clip, step, checkpoint, StepUpdated; then the event Updated."""

    batch: Batch
    micro_cells: Mapping[str, str]


@dataclass(frozen=True)
class Commit:
    """The step is done: every cell acknowledges what it holds of these."""

    step: int
    cells: tuple[str, ...]
    micro_ids: tuple[str, ...]


@dataclass(frozen=True)
class Expel:
    cell: str
    reason: str


@dataclass(frozen=True)
class Release:
    cell: str


Effect = SendStep | Answer | Reduce | Update | Commit | Expel | Release

"""What the step machine hears and what it answers: events and effects as values."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
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
    """Executions."""
    untrained_targets: int = 0
    """Of executions without gradient, which are in no micro-step."""
    untrained_sequences: int = 0
    elites: tuple[str, ...] = ()
    """Samples trained again beside the batch's own: in micro_ids and divisor, not in sample_ids (D9)."""

    def without(self, samples: Collection[str]) -> "Batch":
        """The batch as if these had not been in it: neither trained nor in the divisor."""
        kept = [tuple(name for name in names if name not in samples) for names in (self.sample_ids, self.elites)]
        gone = len(self.sample_ids) + len(self.elites) - sum(map(len, kept))
        return replace(self, sample_ids=kept[0], elites=kept[1], divisor=max(1, self.divisor - gone))


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
class Spoiled:
    """The summed gradient is not finite: the optimizer was not touched."""


@dataclass(frozen=True)
class Depart:
    """A satellite is asked back: it claims nothing more and wants to go without losing what it has computed."""

    cell: str


@dataclass(frozen=True)
class HandOverEnded:
    """The core's accumulators hold (or do not hold) what the departing cell had computed."""

    cell: str
    ok: bool


@dataclass(frozen=True)
class Park:
    """The core is asked back in mid-step: everything stays as it is, and nothing is reduced."""


@dataclass(frozen=True)
class Resume:
    """The core trains again."""


Event = (
    Open
    | Extended
    | Closed
    | Join
    | Leave
    | Claim
    | Computed
    | ReduceEnded
    | Updated
    | Spoiled
    | Depart
    | HandOverEnded
    | Park
    | Resume
)

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
    """In rank order: the core, and the satellites that hold a gradient."""


@dataclass(frozen=True)
class HandOver:
    """Add the gradient of `cell`, which leaves, to the core's."""

    round: int
    cell: str


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


@dataclass(frozen=True)
class Forget:
    """The core's own gradient is thrown away, and its claims go back to the queue."""


Effect = SendStep | Answer | Reduce | HandOver | Update | Commit | Expel | Release | Forget

"""What a trainer cell needs of the facts stream, as a fold."""

from dataclasses import dataclass, field
from enum import Enum

from gyre.records import (
    CELL_PHASES,
    BatchClosed,
    BatchExtended,
    Fact,
    RoleChanged,
    RunStarted,
    StepOpened,
    StepUpdated,
    WeightsPublished,
)
from services.trainer.core.events import Batch

FOLLOWED = (RunStarted, RoleChanged, BatchExtended, BatchClosed, StepOpened, StepUpdated, WeightsPublished)


class Turn(Enum):
    """What the last fact of the cell's role asks of its trainer."""

    REST = "rest"
    """Another process's turn, or rollout."""
    RELEASE = "release"
    """Set training state aside and say `released`."""
    LOAD = "load"
    """Load training state and say `training`."""
    TRAIN = "train"


_TURNS = {
    ("rollout", "requested"): Turn.RELEASE,
    ("training", "unloaded"): Turn.LOAD,
    ("training", "training"): Turn.TRAIN,
}


@dataclass
class Facts:
    """The fold. `apply` each fact in stream order; applying one twice changes nothing."""

    cell: str
    roles: dict[str, RoleChanged] = field(default_factory=dict)
    """Last role fact of every cell."""
    steps: int = 0
    """Optimizer steps of the run; 0 before it began."""
    opened: dict[int, float] = field(default_factory=dict)
    """Step → when it was first opened."""
    updated: set[int] = field(default_factory=set)
    published: set[int] = field(default_factory=set)
    _known: dict[int, set[str]] = field(default_factory=dict)
    _closed: dict[int, Batch] = field(default_factory=dict)

    @property
    def role(self) -> RoleChanged | None:
        return self.roles.get(self.cell)

    @property
    def is_moving(self) -> bool:
        """A role change is under way somewhere."""
        return any(role.phase != CELL_PHASES[role.target][-1] for role in self.roles.values())

    @property
    def turn(self) -> Turn:
        role = self.role
        return Turn.REST if role is None else _TURNS.get((role.target, role.phase), Turn.REST)

    def known(self, step: int) -> frozenset[str]:
        """Micro-steps that the batch of `step` has taken in so far."""
        return frozenset(self._known.get(step, ()))

    def batch(self, step: int) -> Batch | None:
        return self._closed.get(step)

    def forget_before(self, step: int) -> None:
        """Batches of steps that are done are never asked for again; memory is bounded by what is open."""
        for table in (self._known, self._closed):
            for old in [key for key in table if key < step]:
                del table[old]

    def apply(self, fact: Fact) -> None:
        match fact:
            case RunStarted():
                self.steps = fact.steps
            case RoleChanged() if fact.change >= self._change(fact.cell):
                self.roles[fact.cell] = fact
            case BatchExtended():
                self._known.setdefault(fact.step, set()).update(fact.micro_ids)
            case BatchClosed():
                self._closed.setdefault(fact.step, batch_of(fact))
            case StepOpened():
                self.opened.setdefault(fact.step, fact.at_s)
            case StepUpdated():
                self.updated.add(fact.step)
            case WeightsPublished():
                self.published.add(fact.version)

    def _change(self, cell: str) -> int:
        return self.roles[cell].change if cell in self.roles else -1


def batch_of(closed: BatchClosed) -> Batch:
    return Batch(tuple(closed.micro_ids), tuple(closed.sample_ids), closed.divisor)

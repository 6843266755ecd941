"""What a trainer cell needs of the facts stream, as a fold."""

from dataclasses import dataclass, field
from enum import Enum

from gyre.records import (
    BatchClosed,
    BatchExtended,
    BurstOpened,
    Fact,
    RoleChanged,
    StepOpened,
    StepUpdated,
    WeightsPublished,
)
from services.trainer.core.events import Batch

FOLLOWED = (BurstOpened, RoleChanged, BatchExtended, BatchClosed, StepOpened, StepUpdated, WeightsPublished)


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
    always_trains: bool = False
    """The cell has no rollout process that would unload first."""
    role: RoleChanged | None = None
    """Last role fact of the cell."""
    bursts: dict[int, BurstOpened] = field(default_factory=dict)
    """By ordinal."""
    opened: dict[int, float] = field(default_factory=dict)
    """Step → when it was first opened."""
    updated: set[int] = field(default_factory=set)
    lost: set[int] = field(default_factory=set)
    """Steps that trained nothing because every sample of their batch was set aside."""
    published: set[int] = field(default_factory=set)
    _known: dict[int, set[str]] = field(default_factory=dict)
    _closed: dict[int, Batch] = field(default_factory=dict)

    @property
    def turn(self) -> Turn:
        role = self.role
        if role is None:
            return Turn.REST
        if self.always_trains and (role.target, role.phase) == ("training", "requested"):
            return Turn.LOAD
        return _TURNS.get((role.target, role.phase), Turn.REST)

    def burst(self, step: int) -> BurstOpened | None:
        """The burst on record that `step` belongs to."""
        containing = (b for b in self.bursts.values() if b.first_step <= step < b.first_step + b.steps)
        return next(containing, None)

    def is_wanted_in(self, burst: BurstOpened) -> bool:
        """Whether a cell in training trains in this burst too, or waits until it is asked back."""
        return burst.core_stays or self.always_trains or (self.role is not None and self.role.burst >= burst.burst)

    def burst_number(self, step: int) -> int:
        burst = self.burst(step)
        return burst.burst if burst else 0

    def is_publish_due(self, version: int) -> bool:
        """`version` (steps done) ends a burst and is not published."""
        ends = any(version == burst.first_step + burst.steps for burst in self.bursts.values())
        return ends and version not in self.published

    def known(self, step: int) -> frozenset[str]:
        """Micro-steps that the batch of `step` has taken in so far."""
        return frozenset(self._known.get(step, ()))

    def batch(self, step: int) -> Batch | None:
        return self._closed.get(step)

    def lost_before(self, step: int) -> int:
        """How many steps in a row up to `step` are lost."""
        count = 0
        while step - count - 1 in self.lost:
            count += 1
        return count

    def forget_before(self, step: int) -> None:
        """Batches and bursts of steps that are done are never asked for again; memory is bounded by what is open."""
        for table in (self._known, self._closed, self.opened):
            for old in [key for key in table if key < step]:
                del table[old]
        for done in (self.updated, self.published):
            done -= {old for old in done if old < step}
        for old in [key for key, burst in self.bursts.items() if burst.first_step + burst.steps < step]:
            del self.bursts[old]

    def apply(self, fact: Fact) -> None:
        match fact:
            case BurstOpened():
                self.bursts.setdefault(fact.burst, fact)
            case RoleChanged() if fact.cell == self.cell and (self.role is None or fact.change >= self.role.change):
                self.role = fact
            case BatchExtended():
                self._known.setdefault(fact.step, set()).update(fact.micro_ids)
            case BatchClosed():
                self._closed.setdefault(fact.step, batch_of(fact))
            case StepOpened():
                self.opened.setdefault(fact.step, fact.at_s)
            case StepUpdated():
                self.updated.add(fact.step)
                if fact.set_aside and not fact.sample_ids:
                    self.lost.add(fact.step)
            case WeightsPublished():
                self.published.add(fact.version)


def batch_of(closed: BatchClosed) -> Batch:
    return Batch(
        tuple(closed.micro_ids), tuple(closed.sample_ids), closed.divisor,
        closed.untrained_targets, closed.untrained_sequences, tuple(closed.elites),
    )  # fmt: skip

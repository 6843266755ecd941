"""The state of one optimizer step, and what every transition uses (step.py, presence.py)."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from services.trainer.core.events import Batch, Effect


class Phase(Enum):
    IDLE = "idle"
    OPEN = "open"
    SEALED = "sealed"
    REDUCING = "reducing"
    UPDATING = "updating"


@dataclass(frozen=True)
class StepState:
    """`step` is the step in hand; in IDLE the next one."""

    step: int
    core: str
    phase: Phase = Phase.IDLE
    cells: tuple[str, ...] = ()
    """Present cells in rank order, the core first."""
    waiting: tuple[str, ...] = ()
    """Cells that wait for the next step."""
    known: frozenset[str] = frozenset()
    """Micro-steps on record (BatchExtended); what is not on record yet is not computed yet."""
    batch: Batch | None = None
    assigned: Mapping[str, str] = field(default_factory=dict)
    """Micro-step → cell that is computing it."""
    computed: Mapping[str, str] = field(default_factory=dict)
    """Micro-step → living cell that holds its gradient."""
    pending: tuple[tuple[str, str], ...] = ()
    """(cell, micro-step): claims that wait until their micro-step is on record."""
    left: frozenset[str] = frozenset()
    """Cells that died in the present reduction, or while handing over; it may have succeeded nevertheless."""
    departing: tuple[str, ...] = ()
    """Cells that want to leave."""
    handing: str = ""
    """The one of them that is giving its gradient to the core."""
    parked: bool = False
    """The core is in rollout; the step waits."""
    round: int = 0
    failures: int = 0
    """Reductions that failed in a row with none of those that took part known to have died."""
    spoiled: int = 0
    """Sums of this step that were not finite."""

    @property
    def joining_open(self) -> bool:
        return self.phase is Phase.OPEN


Result = tuple[StepState, list[Effect]]


def and_then(step: Callable[[StepState], Result], state: StepState, effects: list[Effect]) -> Result:
    state, more = step(state)
    return state, effects + more


def without(state: StepState, gone: set[str] | frozenset[str]) -> StepState:
    """The state in which these cells are not present, and all they had computed or were computing is lost."""
    return replace(
        state,
        cells=tuple(cell for cell in state.cells if cell not in gone),
        assigned={micro: cell for micro, cell in state.assigned.items() if cell not in gone},
        computed={micro: cell for micro, cell in state.computed.items() if cell not in gone},
        pending=tuple(claim for claim in state.pending if claim[0] not in gone),
        departing=tuple(cell for cell in state.departing if cell not in gone),
    )


def not_waiting(state: StepState, cell: str) -> StepState:
    return replace(state, waiting=tuple(other for other in state.waiting if other != cell))

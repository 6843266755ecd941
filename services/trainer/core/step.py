"""One optimizer step as a state machine (A2, A7, A8): who computes which micro-step, who is present, when to reduce and to commit.

           Open              batch closed, all computed          ReduceEnded(ok)            Updated
    IDLE ────────▶ OPEN ───────────────────────────▶ REDUCING ─────────────────▶ UPDATING ────────▶ IDLE, step + 1
                    │ no micro-steps at all             │ ▲                         ▲
                    └───────────────────────────────────┼─┼─────────────────────────┘
                                       a death's micro- ▼ │ computed again
                                       steps are lost   SEALED

Invariants, upheld here: a micro-step is assigned to at most one living cell; a cell counts in a reduction only while it is present, so what a
dead cell had computed is lost and computed again; nothing is added after all has been computed; the update sees each micro-step of the
batch exactly once (`_complete`), so each sample is trained once. Joining is open in OPEN only.

`decide(state, event) -> (state, effects)`; every pair of phase and event has its line in TABLE.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from gyre.errors import InvariantBroken
from services.trainer.core.events import (
    Answer,
    Batch,
    Claim,
    Closed,
    Commit,
    Computed,
    Dissolve,
    Effect,
    Event,
    Expel,
    Extended,
    Join,
    Leave,
    Open,
    Reduce,
    ReduceEnded,
    Release,
    SendStep,
    Update,
    Updated,
    Verdict,
)

FAILED_ROUNDS_MAX = 3
"""Reductions that fail in a row with nobody known to have died; then the satellites are expelled and the core goes on alone."""


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
    """Cells that died in the present reduction; it may have succeeded nevertheless."""
    round: int = 0
    failures: int = 0

    @property
    def joining_open(self) -> bool:
        return self.phase is Phase.OPEN

    @property
    def satellites(self) -> tuple[str, ...]:
        return tuple(cell for cell in (*self.cells, *self.waiting) if cell != self.core)


Result = tuple[StepState, list[Effect]]


def decide(state: StepState, event: Event) -> Result:
    """The next state and what the shell has to do, in order. Raises InvariantBroken when a promise is about to be broken."""
    return TABLE[state.phase, type(event)](state, event)


def _stay(state: StepState, event: Event) -> Result:
    return state, []


def _open(state: StepState, event: Open) -> Result:
    present = [cell for cell in state.cells if cell != state.core]
    state = replace(
        state, phase=Phase.OPEN, cells=(state.core, *present, *state.waiting), waiting=(), known=event.known, batch=None,
        assigned={}, computed={}, pending=(), left=frozenset(), failures=0,
    )  # fmt: skip
    effects: list[Effect] = [SendStep(cell, joined=cell not in present) for cell in state.cells if cell != state.core]
    if event.batch is None:
        return state, effects
    state, more = _closed(state, Closed(state.step, event.batch))
    return state, effects + more


def _extended(state: StepState, event: Extended) -> Result:
    if event.step != state.step:
        return state, []
    return _settle_pending(replace(state, known=state.known | set(event.micro_ids)))


def _closed(state: StepState, event: Closed) -> Result:
    if event.step != state.step or state.batch is not None:
        return state, []
    strangers = ({*state.assigned, *state.computed}) - set(event.batch.micro_ids)
    if strangers:
        raise InvariantBroken(f"step {state.step}: the batch closed without {sorted(strangers)}, which it had taken in")
    state, effects = _settle_pending(replace(state, batch=event.batch, known=frozenset(event.batch.micro_ids)))
    state, more = _reduce_if_complete(state)
    return state, effects + more


def _settle_pending(state: StepState) -> Result:
    """Answer the claims that waited for their micro-step to be on record."""
    pending, effects = state.pending, []
    state = replace(state, pending=())
    for cell, micro_id in pending:
        state, more = _claim(state, Claim(cell, micro_id, state.step))
        effects += more
    return state, effects


def _claim(state: StepState, event: Claim) -> Result:
    cell, micro_id = event.cell, event.micro_id
    if event.step != state.step or cell not in state.cells:
        return _claim_out_of_step(state, event)
    if micro_id in state.assigned or micro_id in state.computed:
        return state, [Answer(cell, micro_id, Verdict.PASS)]
    if micro_id in state.known:
        state = replace(state, assigned={**state.assigned, micro_id: cell})
        return state, [Answer(cell, micro_id, Verdict.COMPUTE)]
    if state.batch is not None:
        return state, [Answer(cell, micro_id, Verdict.DISCARD)]
    return replace(state, pending=(*state.pending, (cell, micro_id))), []


def _claim_out_of_step(state: StepState, event: Claim) -> Result:
    verdict = Verdict.DISCARD if event.step < state.step else Verdict.PASS
    return state, [Answer(event.cell, event.micro_id, verdict)]


def _computed(state: StepState, event: Computed) -> Result:
    if event.cell not in state.cells:
        return state, []
    if state.assigned.get(event.micro_id) != event.cell:
        return _expel(state, event.cell, f"computed {event.micro_id}, which was not given to it")
    assigned = {micro: cell for micro, cell in state.assigned.items() if micro != event.micro_id}
    computed = {**state.computed, event.micro_id: event.cell}
    return _reduce_if_complete(replace(state, assigned=assigned, computed=computed))


def _expel(state: StepState, cell: str, reason: str) -> Result:
    if cell == state.core:
        raise InvariantBroken(f"step {state.step}: the core {reason}")
    return _without(state, {cell}), [Expel(cell, reason)]


def _complete(state: StepState) -> bool:
    """Every micro-step of the batch is computed by exactly one present cell, and nothing else is."""
    return state.batch is not None and sorted(state.computed) == sorted(state.batch.micro_ids)


def _reduce_if_complete(state: StepState) -> Result:
    if not _complete(state):
        return state, []
    if not state.batch.micro_ids:
        return replace(state, phase=Phase.UPDATING), [Update(state.batch, {})]
    state = replace(state, phase=Phase.REDUCING, round=state.round + 1, left=frozenset())
    return state, [Reduce(state.round, state.cells)]


def _reduce_ended(state: StepState, event: ReduceEnded) -> Result:
    if event.round != state.round:
        return state, []
    if event.ok:
        # A cell that died after giving its part has still given it.
        cells = tuple(cell for cell in state.cells if cell not in state.left)
        state_now = replace(state, phase=Phase.UPDATING, cells=cells, left=frozenset())
        return state_now, [Update(state.batch, dict(state.computed))]
    failures = 0 if state.left else state.failures + 1
    state = replace(_without(state, state.left), phase=Phase.SEALED, left=frozenset(), failures=failures)
    effects: list[Effect] = []
    if failures >= FAILED_ROUNDS_MAX:
        expelled = [cell for cell in state.cells if cell != state.core]
        state = replace(_without(state, set(expelled)), failures=0)
        effects = [Expel(cell, f"{failures} reductions failed") for cell in expelled]
    state, more = _reduce_if_complete(state)
    return state, effects + more


def _updated(state: StepState, event: Updated) -> Result:
    done = Commit(state.step, state.cells, state.batch.micro_ids)
    state = replace(
        state, phase=Phase.IDLE, step=state.step + 1, known=frozenset(), batch=None, assigned={}, computed={}, pending=(),
    )  # fmt: skip
    return state, [done]


def _join_now(state: StepState, event: Join) -> Result:
    state = _without(state, {event.cell})
    mid_batch = bool(state.computed)
    state = replace(state, cells=(*state.cells, event.cell))
    return state, [SendStep(event.cell, joined=True, mid_batch=mid_batch)]


def _join_later(state: StepState, event: Join) -> Result:
    state, effects = TABLE[state.phase, Leave](state, Leave(event.cell))
    return replace(state, waiting=(*state.waiting, event.cell)), effects


def _leave(state: StepState, event: Leave) -> Result:
    return _not_waiting(_without(state, {event.cell}), event.cell), []


def _leave_reducing(state: StepState, event: Leave) -> Result:
    if event.cell in state.cells:
        state = replace(state, left=state.left | {event.cell})
    return _not_waiting(state, event.cell), []


def _leave_updating(state: StepState, event: Leave) -> Result:
    """Its gradient is in the sum already."""
    state = replace(state, cells=tuple(cell for cell in state.cells if cell != event.cell))
    return _not_waiting(state, event.cell), []


def _not_waiting(state: StepState, cell: str) -> StepState:
    return replace(state, waiting=tuple(other for other in state.waiting if other != cell))


def _without(state: StepState, gone: set[str] | frozenset[str]) -> StepState:
    """The state in which these cells are not present, and all they had computed or were computing is lost."""
    return replace(
        state,
        cells=tuple(cell for cell in state.cells if cell not in gone),
        assigned={micro: cell for micro, cell in state.assigned.items() if cell not in gone},
        computed={micro: cell for micro, cell in state.computed.items() if cell not in gone},
        pending=tuple(claim for claim in state.pending if claim[0] not in gone),
    )


def _dissolve(state: StepState, event: Dissolve) -> Result:
    released: list[Effect] = [Release(cell) for cell in state.satellites]
    return StepState(step=state.step, core=state.core, round=state.round), released


TABLE: dict[tuple[Phase, type], Callable[[StepState, Event], Result]] = {
    (Phase.IDLE, Open): _open,
    (Phase.IDLE, Extended): _stay,
    (Phase.IDLE, Closed): _stay,
    (Phase.IDLE, Join): _join_later,
    (Phase.IDLE, Leave): _leave,
    (Phase.IDLE, Claim): _claim_out_of_step,
    (Phase.IDLE, Computed): _stay,
    (Phase.IDLE, ReduceEnded): _stay,
    (Phase.IDLE, Updated): _stay,
    (Phase.IDLE, Dissolve): _dissolve,
    (Phase.OPEN, Open): _stay,
    (Phase.OPEN, Extended): _extended,
    (Phase.OPEN, Closed): _closed,
    (Phase.OPEN, Join): _join_now,
    (Phase.OPEN, Leave): _leave,
    (Phase.OPEN, Claim): _claim,
    (Phase.OPEN, Computed): _computed,
    (Phase.OPEN, ReduceEnded): _stay,
    (Phase.OPEN, Updated): _stay,
    (Phase.OPEN, Dissolve): _dissolve,
    (Phase.SEALED, Open): _stay,
    (Phase.SEALED, Extended): _stay,
    (Phase.SEALED, Closed): _stay,
    (Phase.SEALED, Join): _join_later,
    (Phase.SEALED, Leave): _leave,
    (Phase.SEALED, Claim): _claim,
    (Phase.SEALED, Computed): _computed,
    (Phase.SEALED, ReduceEnded): _stay,
    (Phase.SEALED, Updated): _stay,
    (Phase.SEALED, Dissolve): _dissolve,
    (Phase.REDUCING, Open): _stay,
    (Phase.REDUCING, Extended): _stay,
    (Phase.REDUCING, Closed): _stay,
    (Phase.REDUCING, Join): _join_later,
    (Phase.REDUCING, Leave): _leave_reducing,
    (Phase.REDUCING, Claim): _claim,
    (Phase.REDUCING, Computed): _stay,
    (Phase.REDUCING, ReduceEnded): _reduce_ended,
    (Phase.REDUCING, Updated): _stay,
    (Phase.REDUCING, Dissolve): _stay,
    (Phase.UPDATING, Open): _stay,
    (Phase.UPDATING, Extended): _stay,
    (Phase.UPDATING, Closed): _stay,
    (Phase.UPDATING, Join): _join_later,
    (Phase.UPDATING, Leave): _leave_updating,
    (Phase.UPDATING, Claim): _claim_out_of_step,
    (Phase.UPDATING, Computed): _stay,
    (Phase.UPDATING, ReduceEnded): _stay,
    (Phase.UPDATING, Updated): _updated,
    (Phase.UPDATING, Dissolve): _stay,
}

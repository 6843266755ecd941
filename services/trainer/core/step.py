"""One optimizer step as a state machine (A2, A7, A8): who computes which micro-step, who is present, when to reduce and to commit.

           Open              batch closed, all computed          ReduceEnded(ok)            Updated
    IDLE ────────▶ OPEN ───────────────────────────▶ REDUCING ─────────────────▶ UPDATING ────────▶ IDLE, step + 1
                    │ no micro-steps at all             │ ▲                         ▲
                    └───────────────────────────────────┼─┼─────────────────────────┘
                                       a death's micro- ▼ │ computed again
                                       steps are lost   SEALED

A sum that is not finite (Spoiled) leads from UPDATING back to OPEN: nothing was applied, every gradient is thrown away and computed again.

A cell that is asked back in mid-step loses nothing: a satellite gives its gradient to the core before it goes (Depart, HandOver), the core keeps
everything and only does not reduce until it trains again (Park, Resume).

Invariants, upheld here: a micro-step is assigned to at most one living cell; a cell counts in a reduction only while it is present, so what a
dead cell had computed is lost and computed again; nothing is added after all has been computed; the update sees each micro-step of the
batch exactly once (`complete`), so each sample is trained once. Joining is open in OPEN only. A round is of the core and of those that hold a
gradient (`givers`): who holds none adds nothing and cannot make it fail; the commit is everybody's.

`decide(state, event) -> (state, effects)`; every pair of phase and event has its line in TABLE.
"""

from collections.abc import Callable
from dataclasses import replace

from gyre.errors import GaveUp, InvariantBroken
from services.trainer.core.events import (
    Answer,
    Batch,
    Claim,
    Closed,
    Commit,
    Computed,
    Depart,
    Effect,
    Event,
    Expel,
    Extended,
    Forget,
    HandOverEnded,
    Join,
    Leave,
    Open,
    Park,
    ReduceEnded,
    Resume,
    SendStep,
    Spoiled,
    Update,
    Updated,
    Verdict,
)
from services.trainer.core.presence import (
    depart,
    depart_later,
    givers,
    hand_over_ended,
    join_later,
    join_now,
    leave,
    leave_reducing,
    leave_updating,
    park,
    resume,
    settle,
)
from services.trainer.core.state import Phase, Result, StepState, and_then, without

__all__ = ["TABLE", "Batch", "Phase", "StepState", "Verdict", "decide"]

FAILED_ROUNDS_MAX = 3
"""Reductions that fail in a row with none of those that took part known to have died; then the satellites are expelled and the core goes on alone."""

SPOILED_MAX = 3
"""Sums of one step that may be not finite. Each cell has found its own part finite, so it was memory, or the way between cells."""


def decide(state: StepState, event: Event) -> Result:
    """The next state and what the shell has to do, in order. Raises InvariantBroken when a promise is about to be broken."""
    return TABLE[state.phase, type(event)](state, event)


def _stay(state: StepState, event: Event) -> Result:
    return state, []


def _open(state: StepState, event: Open) -> Result:
    present = [cell for cell in state.cells if cell != state.core]
    state = replace(
        state, phase=Phase.OPEN, cells=(state.core, *present, *state.waiting), waiting=(), known=event.known, batch=None,
        assigned={}, computed={}, pending=(), left=frozenset(), failures=0, spoiled=0, handing="", parked=False,
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
    return and_then(settle, state, effects)


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
    if cell in state.departing or (state.parked and cell == state.core):
        return state, [Answer(cell, micro_id, Verdict.PASS)]
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
    return settle(replace(state, assigned=assigned, computed=computed))


def _expel(state: StepState, cell: str, reason: str) -> Result:
    if cell == state.core:
        raise InvariantBroken(f"step {state.step}: the core {reason}")
    return without(state, {cell}), [Expel(cell, reason)]


def _reduce_ended(state: StepState, event: ReduceEnded) -> Result:
    if event.round != state.round:
        return state, []
    if event.ok:
        # A cell that died after giving its part has still given it.
        cells = tuple(cell for cell in state.cells if cell not in state.left)
        state_now = replace(state, phase=Phase.UPDATING, cells=cells, left=frozenset())
        return state_now, [Update(state.batch, dict(state.computed))]
    failures = 0 if state.left.intersection(givers(state)) else state.failures + 1
    state = replace(without(state, state.left), phase=Phase.SEALED, left=frozenset(), failures=failures)
    effects: list[Effect] = []
    if failures >= FAILED_ROUNDS_MAX:
        expelled = [cell for cell in state.cells if cell != state.core]
        state = replace(without(state, set(expelled)), failures=0)
        effects = [Expel(cell, f"{failures} reductions failed") for cell in expelled]
    return and_then(settle, state, effects)


def _updated(state: StepState, event: Updated) -> Result:
    done = Commit(state.step, state.cells, state.batch.micro_ids)
    state = replace(
        state, phase=Phase.IDLE, step=state.step + 1, known=frozenset(), batch=None, assigned={}, computed={}, pending=(),
    )  # fmt: skip
    return and_then(settle, state, [done])


def _spoiled(state: StepState, event: Spoiled) -> Result:
    """Cells may join again at once: the batch is whole, and all of it is to be computed."""
    spoiled = state.spoiled + 1
    if spoiled >= SPOILED_MAX:
        raise GaveUp(
            f"step {state.step}: the sum of gradients was not finite {spoiled} times, though each cell's part was; weights and optimizer are those "
            f"of version {state.step}, on disk. Look for failing memory or a failing link between the cells {', '.join(state.cells)}"
        )
    satellites = [cell for cell in state.cells if cell != state.core]
    state = replace(
        without(state, set(state.cells)), phase=Phase.OPEN, cells=(state.core,), spoiled=spoiled, left=frozenset(), parked=False,
    )  # fmt: skip
    return state, [*(Expel(cell, "the sum of gradients was not finite") for cell in satellites), Forget()]


TABLE: dict[tuple[Phase, type], Callable[[StepState, Event], Result]] = {
    (Phase.IDLE, Open): _open,
    (Phase.IDLE, Extended): _stay,
    (Phase.IDLE, Closed): _stay,
    (Phase.IDLE, Join): join_later,
    (Phase.IDLE, Leave): leave,
    (Phase.IDLE, Claim): _claim_out_of_step,
    (Phase.IDLE, Computed): _stay,
    (Phase.IDLE, ReduceEnded): _stay,
    (Phase.IDLE, Updated): _stay,
    (Phase.IDLE, Spoiled): _stay,
    (Phase.IDLE, Depart): depart,
    (Phase.IDLE, HandOverEnded): _stay,
    (Phase.IDLE, Park): _stay,
    (Phase.IDLE, Resume): _stay,
    (Phase.OPEN, Open): _stay,
    (Phase.OPEN, Extended): _extended,
    (Phase.OPEN, Closed): _closed,
    (Phase.OPEN, Join): join_now,
    (Phase.OPEN, Leave): leave,
    (Phase.OPEN, Claim): _claim,
    (Phase.OPEN, Computed): _computed,
    (Phase.OPEN, ReduceEnded): _stay,
    (Phase.OPEN, Updated): _stay,
    (Phase.OPEN, Spoiled): _stay,
    (Phase.OPEN, Depart): depart,
    (Phase.OPEN, HandOverEnded): hand_over_ended,
    (Phase.OPEN, Park): park,
    (Phase.OPEN, Resume): resume,
    (Phase.SEALED, Open): _stay,
    (Phase.SEALED, Extended): _stay,
    (Phase.SEALED, Closed): _stay,
    (Phase.SEALED, Join): join_later,
    (Phase.SEALED, Leave): leave,
    (Phase.SEALED, Claim): _claim,
    (Phase.SEALED, Computed): _computed,
    (Phase.SEALED, ReduceEnded): _stay,
    (Phase.SEALED, Updated): _stay,
    (Phase.SEALED, Spoiled): _stay,
    (Phase.SEALED, Depart): depart,
    (Phase.SEALED, HandOverEnded): hand_over_ended,
    (Phase.SEALED, Park): park,
    (Phase.SEALED, Resume): resume,
    (Phase.REDUCING, Open): _stay,
    (Phase.REDUCING, Extended): _stay,
    (Phase.REDUCING, Closed): _stay,
    (Phase.REDUCING, Join): join_later,
    (Phase.REDUCING, Leave): leave_reducing,
    (Phase.REDUCING, Claim): _claim,
    (Phase.REDUCING, Computed): _stay,
    (Phase.REDUCING, ReduceEnded): _reduce_ended,
    (Phase.REDUCING, Updated): _stay,
    (Phase.REDUCING, Spoiled): _stay,
    (Phase.REDUCING, Depart): depart_later,
    (Phase.REDUCING, HandOverEnded): _stay,
    (Phase.REDUCING, Park): _stay,
    (Phase.REDUCING, Resume): _stay,
    (Phase.UPDATING, Open): _stay,
    (Phase.UPDATING, Extended): _stay,
    (Phase.UPDATING, Closed): _stay,
    (Phase.UPDATING, Join): join_later,
    (Phase.UPDATING, Leave): leave_updating,
    (Phase.UPDATING, Claim): _claim_out_of_step,
    (Phase.UPDATING, Computed): _stay,
    (Phase.UPDATING, ReduceEnded): _stay,
    (Phase.UPDATING, Updated): _updated,
    (Phase.UPDATING, Spoiled): _spoiled,
    (Phase.UPDATING, Depart): depart_later,
    (Phase.UPDATING, HandOverEnded): _stay,
    (Phase.UPDATING, Park): _stay,
    (Phase.UPDATING, Resume): _stay,
}

"""Who takes part in the step in hand: joining, dying, leaving without loss, and the core's own absence (A6, A8)."""

from dataclasses import replace

from services.trainer.core.events import (
    Answer,
    Depart,
    Effect,
    HandOver,
    HandOverEnded,
    Join,
    Leave,
    Park,
    Reduce,
    Release,
    Resume,
    SendStep,
    Update,
    Verdict,
)
from services.trainer.core.state import Phase, Result, StepState, and_then, not_waiting, without


def settle(state: StepState) -> Result:
    """What has become possible: to reduce, else to let go who wants to leave, one hand-over at a time."""
    state, effects = reduce_if_complete(state)
    if state.phase not in (Phase.IDLE, Phase.OPEN, Phase.SEALED):
        return state, effects
    for cell in state.departing:
        if cell == state.handing or cell in state.assigned.values():
            continue
        if cell not in state.computed.values():
            state = without(state, {cell})
            effects.append(Release(cell))
        elif not state.handing:
            state = replace(state, handing=cell, round=state.round + 1)
            effects.append(HandOver(state.round, cell))
    return state, effects


def reduce_if_complete(state: StepState) -> Result:
    if not complete(state) or state.parked or state.handing:
        return state, []
    if not state.batch.micro_ids:
        return replace(state, phase=Phase.UPDATING), [Update(state.batch, {})]
    state = replace(state, phase=Phase.REDUCING, round=state.round + 1, left=frozenset())
    return state, [Reduce(state.round, givers(state))]


def givers(state: StepState) -> tuple[str, ...]:
    """Who takes part in the reduction, in rank order: the core, and whoever holds a gradient. Others have nothing to add, and one that joined and
    still loads its weights would not hear of the round in time."""
    return tuple(cell for cell in state.cells if cell == state.core or cell in state.computed.values())


def complete(state: StepState) -> bool:
    """Every micro-step of the batch is computed by exactly one present cell, and nothing else is."""
    return state.batch is not None and sorted(state.computed) == sorted(state.batch.micro_ids)


# Joining and dying


def join_now(state: StepState, event: Join) -> Result:
    if event.cell == state.handing:  # its old stream broke; whether its gradient arrived is not known yet
        return join_later(state, event)
    state = without(state, {event.cell})
    mid_batch = bool(state.computed)
    state = replace(state, cells=(*state.cells, event.cell))
    return state, [SendStep(event.cell, joined=True, mid_batch=mid_batch)]


def join_later(state: StepState, event: Join) -> Result:
    gone = {Phase.REDUCING: leave_reducing, Phase.UPDATING: leave_updating}.get(state.phase, leave)
    state, effects = gone(state, Leave(event.cell))
    return replace(state, waiting=(*state.waiting, event.cell)), effects


def leave(state: StepState, event: Leave) -> Result:
    if event.cell == state.handing:
        return leave_reducing(state, event)
    return settle(not_waiting(without(state, {event.cell}), event.cell))


def leave_reducing(state: StepState, event: Leave) -> Result:
    """Whether its gradient arrived is known at the end."""
    if event.cell in state.cells:
        state = replace(state, left=state.left | {event.cell})
    return not_waiting(state, event.cell), []


def leave_updating(state: StepState, event: Leave) -> Result:
    """Its gradient is in the sum already."""
    state = replace(
        state, cells=tuple(cell for cell in state.cells if cell != event.cell),
        departing=tuple(cell for cell in state.departing if cell != event.cell),
    )  # fmt: skip
    return not_waiting(state, event.cell), []


# Leaving without loss


def depart(state: StepState, event: Depart) -> Result:
    if event.cell not in state.cells:
        return not_waiting(state, event.cell), [Release(event.cell)]
    if event.cell not in state.departing:
        state = replace(state, departing=(*state.departing, event.cell))
    state, effects = pass_pending(state, event.cell)
    return and_then(settle, state, effects)


def depart_later(state: StepState, event: Depart) -> Result:
    """When the update is done."""
    if event.cell in state.cells and event.cell not in state.departing:
        return replace(state, departing=(*state.departing, event.cell)), []
    return not_waiting(state, event.cell), [] if event.cell in state.cells else [Release(event.cell)]


def hand_over_ended(state: StepState, event: HandOverEnded) -> Result:
    """Its micro-steps are the core's now, or lost."""
    cell = event.cell
    if cell != state.handing:
        return state, []
    if event.ok:
        state = replace(
            state, computed={micro: state.core if at == cell else at for micro, at in state.computed.items()}
        )
    effects: list[Effect] = [] if cell in state.left else [Release(cell)]
    state = replace(without(state, {cell}), handing="", left=state.left - {cell})
    if cell in state.waiting and state.joining_open:
        state, more = join_now(not_waiting(state, cell), Join(cell))
        effects += more
    return and_then(settle, state, effects)


def park(state: StepState, event: Park) -> Result:
    return pass_pending(replace(state, parked=True), state.core)


def resume(state: StepState, event: Resume) -> Result:
    return settle(replace(state, parked=False))


def pass_pending(state: StepState, cell: str) -> Result:
    """A cell that stops has its waiting claims answered: others may have them."""
    passed = [Answer(cell, micro_id, Verdict.PASS) for other, micro_id in state.pending if other == cell]
    return replace(state, pending=tuple(claim for claim in state.pending if claim[0] != cell)), passed

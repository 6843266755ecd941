"""Batches and optimizer steps."""

from gyre import records as r
from gyre.records.lifecycle import FINAL, ExecutionState
from services.scheduler.core import late
from services.scheduler.core.boundary import groups_wanted
from services.scheduler.core.fold.moves import close_if_over, move, of_samples
from services.scheduler.core.groups import TAKEN
from services.scheduler.core.state import State

_S = ExecutionState


def _batch_extended(state: State, fact: r.BatchExtended) -> None:
    state.begun_step = max(state.begun_step, fact.step)
    took = False
    for group, execution in of_samples(state, fact.sample_ids):
        if execution.state not in TAKEN:
            took |= move(state, group, execution, _S.CLAIMED)
    if took:
        state.pace.taken(fact.at_s)


def _batch_closed(state: State, fact: r.BatchClosed) -> None:
    if fact.step <= state.closed_step:
        return
    state.closed_step = fact.step
    state.batches[fact.step] = fact.sample_ids
    if fact.groups:
        state.burst_groups += groups_wanted(fact)
        state.burst_steps += 1


def _step_updated(state: State, fact: r.StepUpdated) -> None:
    """Trained: what gave a gradient, and what the batch counted in its divisor (a sample with zero advantage has no gradient). Dropped: what the
    trainer set aside; it is over before its SampleDropped comes, so that a boundary in between counts as many outstanding groups as there are."""
    if fact.version > state.steps_done:
        state.pace.updated(fact.at_s)
        state.history.updated_at_s = fact.at_s
    state.steps_done = max(state.steps_done, fact.version)
    batch = state.batches.pop(fact.step, [])
    for group, execution in of_samples(state, fact.set_aside):
        if execution.state not in FINAL and move(state, group, execution, _S.DROPPED):
            close_if_over(state, group)
    for group, execution in of_samples(state, dict.fromkeys([*fact.sample_ids, *batch])):
        if execution.state in FINAL:
            continue
        if execution.state == _S.CLAIMED or move(state, group, execution, _S.CLAIMED):
            move(state, group, execution, _S.TRAINED)
            close_if_over(state, group)


HANDLERS = {
    r.BatchExtended: _batch_extended,
    r.BatchOverdue: late.remember,
    r.BatchClosed: _batch_closed,
    r.StepUpdated: _step_updated,
}

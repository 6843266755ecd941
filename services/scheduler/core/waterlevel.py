"""Who trains (A3, A4): release by the waterlevel, return at the boundary. Moves are serial, trainers are a prefix of the cell order."""

from gyre.records.lifecycle import FINAL, ExecutionState
from services.scheduler.core import dispatch
from services.scheduler.core.types import Group, State

_TAKEN = frozenset({ExecutionState.CLAIMED, *FINAL})


def is_moving(state: State) -> bool:
    """A role change is under way somewhere (or a cell has not come up yet): the next one waits."""
    return any(not cell.is_settled for cell in state.cells.values())


def next_return(state: State) -> str | None:
    """The cell to go back to rollout now: the last trainer that was released before the last boundary, the core only if it does not stay."""
    if is_moving(state):
        return None
    trainers = [name for name, cell in state.cells.items() if cell.target == "training"]
    if not trainers or state.cells[trainers[-1]].boundary == state.boundaries:
        return None
    is_core = len(trainers) == 1
    return None if is_core and state.core_stays else trainers[-1]


def next_release(state: State) -> str | None:
    """The cell to go to training now: the next in order, when the cells that remain hold every unfinished execution."""
    if is_moving(state) or not _burst_is_open(state):
        return None
    name = next((name for name, cell in state.cells.items() if cell.target == "rollout"), None)
    if name is None or state.waterlevel > state.capacity - state.settings.cell_capacity:
        return None
    is_core = name == next(iter(state.cells))
    return name if (_core_has_work(state) if is_core else _satellite_has_work(state)) else None


def core_stays(state: State, at_s: float) -> bool:
    """The return rule, at a boundary: the next step's groups are ready, and the satellites hold all that runs and is about to be sent."""
    core = next(iter(state.cells.values()))
    if state.steps_left == 0 or core.target != "training":
        return False
    wanted = min(state.groups_per_step, state.outstanding_groups + state.need)
    if not 0 < wanted <= sum(map(_is_ready, state.groups.values())):
        return False
    unsent = dispatch.in_order(state, at_s)[: state.need] + list(state.evaluations.values())
    unfinished = state.waterlevel + sum(group.task.group_size for group in unsent)
    return unfinished <= state.settings.cell_capacity * (state.settings.cells - 1)


def _burst_is_open(state: State) -> bool:
    """Steps are left and the boundary has sent what it could: all, or all there was."""
    return state.steps_left > 0 and (state.need == 0 or not state.queue)


def _core_has_work(state: State) -> bool:
    """Groups of this burst that were all dropped count too: their step must be opened to be closed without gradient."""
    return state.outstanding_groups > 0 or state.sent_groups > 0


def _satellite_has_work(state: State) -> bool:
    """Micro-steps of this burst may still come: its last batch is open, and some group is not in a batch yet."""
    after_burst = (state.burst + 1) * state.settings.steps_per_publish
    last_step = min(after_burst, state.steps_wanted) - 1
    return state.closed_step < last_step and any(map(_is_untaken, state.groups.values()))


def _is_untaken(group: Group) -> bool:
    return group.is_trained and any(member.state not in _TAKEN for member in group.executions.values())


def _is_ready(group: Group) -> bool:
    """Every member is ready or dropped, and one at least is ready."""
    states = {member.state for member in group.executions.values()}
    return group.is_trained and ExecutionState.READY in states and states <= {ExecutionState.READY, *FINAL}

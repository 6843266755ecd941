"""elastic (A3, A4): release by the waterlevel, return at the boundary. One move at a time; trainers are a prefix of the cell order."""

from services.scheduler.core import dispatch
from services.scheduler.core.roles import work
from services.scheduler.core.state import State


def moves(state: State, now_s: float) -> list[tuple[str, str]]:
    """The next return, or else the next release."""
    if (name := due_return(state, now_s)) is not None:
        return [(name, "rollout")]
    if (name := due_release(state, now_s)) is not None:
        return [(name, "training")]
    return []


def core_stays(state: State, need: int) -> bool:
    """The next step's groups are ready, and the other cells hold all that runs and is about to be sent."""
    without_core = state.fleet.rollout_capacity - state.fleet.core.capacity
    return work.batch_is_ready(state, need) and work.unfinished_with(state, need) <= without_core


def due_return(state: State, now_s: float) -> str | None:
    """The last trainer, if it was asked for in an earlier burst; the core only if it does not stay. Without a core nobody can train."""
    fleet = state.fleet
    if not fleet.training:
        return None
    position = fleet.training[-1]
    is_of_this_burst = state.is_burst_open and fleet.at(position).burst >= state.burst
    stays = is_of_this_burst or (position == 0 and state.core_stays)
    return None if stays and not fleet.core.is_lost and not work.is_stuck(state, now_s) else fleet.names[position]


def due_release(state: State, now_s: float) -> str | None:
    """The next cell in order, when the cells that remain hold every unfinished execution: w ≤ ρ·(C_R − C_e)."""
    position = next_in(state)
    if position is None or not work.burst_has_sent(state):
        return None
    if state.waterlevel > state.knobs.release_share * (state.capacity - state.fleet.at(position).capacity):
        return None
    has_work = _core_has_work(state) if position == 0 else _satellite_has_work(state, now_s)
    return state.fleet.names[position] if has_work else None


def next_in(state: State) -> int | None:
    """Position of the cell that would train next: the core, or once it trains the first that serves."""
    fleet = state.fleet
    if not fleet.serving or fleet.core.is_lost:
        return None
    position = fleet.serving[0]
    return position if position == 0 or fleet.core.target == "training" else None


def _core_has_work(state: State) -> bool:
    if not state.settings.streaming:
        return work.batch_is_ready(state, dispatch.groups_due(state)) or dispatch.is_dry(state)
    return state.outstanding_groups > 0 or dispatch.is_dry(state)


def _satellite_has_work(state: State, now_s: float) -> bool:
    """Micro-steps may still come; or those of the burst's last batch, which is whole, will take longer than the way there and back."""
    if not state.settings.streaming and not work.batch_is_ready(state, dispatch.groups_due(state)):
        return False
    if work.last_batch_is_open(state):
        return True
    left_s = state.pace.left_at_s(now_s) / max(1, state.fleet.trainers)
    return state.steps_done < state.burst_end and left_s > state.fleet.switch_cost_s()

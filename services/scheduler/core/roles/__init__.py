"""Who trains (A3, A4, A9): one rule a mode. A rule says which cells are to change their role now, and whether the core stays at a boundary.

| mode | rule | moves |
|---|---|---|
| elastic, elastic_plus one way | waterlevel | one cell at a time into training as work ends; back at the publish |
| elastic_plus, two way | two_way | one at a time, also back inside a burst |
| async | fixed | none |
| colocate | colocate | all elastic cells at once, for a step at least |
| hybrid_switch | hybrid | all elastic cells at once, lent to rollout while that pays |
"""

from types import ModuleType

from services.scheduler.core.roles import colocate, fixed, hybrid, two_way, waterlevel
from services.scheduler.core.settings import Knobs
from services.scheduler.core.state import State

Move = tuple[str, str]
"""(cell, target role)"""

_RULES: dict[str, ModuleType] = {
    "elastic": waterlevel,
    "elastic_plus": waterlevel,
    "async": fixed,
    "colocate": colocate,
    "hybrid_switch": hybrid,
}


def moves(state: State, now_s: float) -> list[Move]:
    """Role changes to request now. None while one is under way: moves are serial, or all of a kind at once."""
    return [] if state.fleet.is_moving else _rule(state, state.knobs).moves(state, now_s)


def core_stays(state: State, need: int) -> bool:
    """The return rule at a boundary that is about to dispatch `need` groups."""
    if state.steps_left == 0 or state.fleet.core.target != "training":
        return False
    return _rule(state, state.planned).core_stays(state, need)


def _rule(state: State, knobs: Knobs) -> ModuleType:
    if state.settings.mode == "elastic_plus" and knobs.is_two_way:
        return two_way
    return _RULES[state.settings.mode]

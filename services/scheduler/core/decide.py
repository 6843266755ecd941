"""State → what to publish now. Idempotent: once its decisions are folded, the same state and time give none."""

import msgspec

from gyre.records import RoleChanged
from services.scheduler.core import alarms, boundary, dispatch, late, roles
from services.scheduler.core.fleet import initial_role
from services.scheduler.core.state import State


def decide(state: State, now_s: float) -> list[msgspec.Struct]:
    """Facts, in the order in which they are to be published.

    The caller publishes them, lets them come back through the stream into `apply`, and only then asks again. A boundary is decided alone: all
    else follows from it.
    """
    if boundary.is_due(state):
        return [boundary.opened(state, now_s)]
    decisions: list[msgspec.Struct] = [
        _request(state, name, initial_role(state.cells[name].kind), now_s) for name in state.fleet.unasked
    ]
    decisions += late.commands(state, now_s)
    groups = dispatch.select(state)
    # Cells go back before groups are sent to them; none is released while groups are about to raise the waterlevel.
    decisions += [
        _request(state, name, target, now_s)
        for name, target in roles.moves(state, now_s)
        if target == "rollout" or not groups
    ]
    decisions += [dispatch.dispatched(state, group, now_s) for group in groups]
    return decisions + alarms.raised(state, now_s)


def _request(state: State, name: str, target: str, now_s: float) -> RoleChanged:
    change = state.cells[name].change + 1
    return RoleChanged(cell=name, change=change, target=target, phase="requested", at_s=now_s, burst=state.burst)

"""State → what to publish now. Idempotent: once its decisions are folded, the same state and time give none."""

import msgspec

from gyre.records import AlarmRaised, RoleChanged
from services.scheduler.core import dispatch, waterlevel
from services.scheduler.core.types import Group, State

SILENT_CELL_S = 60.0
"""A role change without a word for this long raises an alarm; real ones take seconds."""


def decide(state: State, now_s: float) -> list[msgspec.Struct]:
    """Facts and TaskDispatched messages, in the order in which they are to be published.

    The caller publishes them, lets them come back through the stream into `apply`, and only then asks again.
    """
    decisions: list[msgspec.Struct] = [
        _request(state, name, "rollout", now_s) for name, cell in state.cells.items() if cell.change < 0
    ]
    groups = dispatch.select(state, now_s)
    if (name := waterlevel.next_return(state)) is not None:  # before the groups: the cell waits for this word
        decisions.append(_request(state, name, "rollout", now_s))
    elif not groups and (name := waterlevel.next_release(state)) is not None:
        decisions.append(_request(state, name, "training", now_s))
    for group in groups:
        decisions.append(dispatch.dispatched(state, group, now_s))
        decisions += [
            dispatch.task(state, group, member, state.published_version, now_s)
            for member in range(group.task.group_size)
        ]
    return decisions + _alarms(state, now_s)


def _request(state: State, name: str, target: str, now_s: float) -> RoleChanged:
    change = state.cells[name].change + 1
    return RoleChanged(cell=name, change=change, target=target, phase="requested", at_s=now_s, burst=state.burst)


def _alarms(state: State, now_s: float) -> list[AlarmRaised]:
    """At most one of a kind in the time that its own line names."""
    alarms = []
    silent = {
        name: now_s - cell.at_s
        for name, cell in state.cells.items()
        if cell.change >= 0 and not cell.is_settled and now_s - cell.at_s > SILENT_CELL_S
    }
    if silent and _is_due(state, "cell_silent", SILENT_CELL_S, now_s):
        names = ", ".join(f"{name} after `{state.cells[name].phase}`" for name in silent)
        message = f"no word on the role change of {names} for more than {SILENT_CELL_S:g} s"
        alarms.append(AlarmRaised(kind="cell_silent", message=message, service="scheduler", at_s=now_s, values=silent))

    line_s = state.settings.starvation_s
    oldest_s = next((_waited_s(state, group, now_s) for group in state.queue.values()), 0.0)
    if oldest_s > line_s and state.steps_left > 0 and _is_due(state, "starvation", line_s, now_s):
        starved = sum(_waited_s(state, group, now_s) > line_s for group in state.queue.values())
        message = f"{starved} groups have waited for more than {line_s:g} s, the oldest {oldest_s:.0f} s"
        values = {"groups": float(starved), "wait_s_max": oldest_s}
        alarms.append(AlarmRaised(kind="starvation", message=message, service="scheduler", at_s=now_s, values=values))
    return alarms


def _waited_s(state: State, group: Group, now_s: float) -> float:
    """Waiting for training to begin is nobody's starvation."""
    return now_s - max(group.submitted_at_s, state.started_at_s)


def _is_due(state: State, kind: str, every_s: float, now_s: float) -> bool:
    return now_s - state.alarms.get(kind, float("-inf")) > every_s

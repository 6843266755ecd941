"""What an operator must see: a role change that hangs, groups that starve. At most one of a kind in the time that its own line names."""

from gyre.records import AlarmRaised
from services.scheduler.core.state import State

SILENT_CELL_S = 60.0
"""A role change without a word for this long raises an alarm; real ones take seconds."""


def raised(state: State, now_s: float) -> list[AlarmRaised]:
    """The alarms that are due now."""
    return _silent_cells(state, now_s) + _starvation(state, now_s)


def _silent_cells(state: State, now_s: float) -> list[AlarmRaised]:
    if not state.fleet.moving or not _is_due(state, "cell_silent", SILENT_CELL_S, now_s):
        return []
    silent = {}
    for name in state.fleet.moving:
        cell = state.cells[name]
        if cell.change >= 0 and now_s - cell.at_s > SILENT_CELL_S:
            silent[name] = now_s - cell.at_s
    if not silent:
        return []
    names = ", ".join(f"{name} after `{state.cells[name].phase}`" for name in silent)
    message = f"no word on the role change of {names} for more than {SILENT_CELL_S:g} s"
    return [AlarmRaised(kind="cell_silent", message=message, service="scheduler", at_s=now_s, values=silent)]


def _starvation(state: State, now_s: float) -> list[AlarmRaised]:
    """Waiting for training to begin is nobody's starvation; evaluations do not wait for it."""
    line_s, train, evaluations = state.settings.starvation_s, state.queue, state.evaluations
    since_s = [evaluations.oldest_s] if evaluations.groups else []
    if train.oldest_s is not None and state.steps_left > 0:
        since_s.append(max(train.oldest_s, state.started_at_s))
    if not since_s or now_s - min(since_s) <= line_s or not _is_due(state, "starvation", line_s, now_s):
        return []
    waits_s = [now_s - group.submitted_at_s for group in evaluations.groups.values()]
    if state.steps_left > 0:
        waits_s += [now_s - max(group.submitted_at_s, state.started_at_s) for group in train.groups.values()]
    starved, wait_s_max = sum(wait_s > line_s for wait_s in waits_s), now_s - min(since_s)
    message = f"{starved} groups have waited for more than {line_s:g} s, the oldest {wait_s_max:.0f} s"
    values = {"groups": float(starved), "wait_s_max": wait_s_max}
    return [AlarmRaised(kind="starvation", message=message, service="scheduler", at_s=now_s, values=values)]


def _is_due(state: State, kind: str, every_s: float, now_s: float) -> bool:
    return now_s - state.alarms.get(kind, float("-inf")) > every_s

"""How many calls are of unknown role, by type of execution: what is never trained must not go unseen (B5)."""

WINDOW_CALLS = 50
"""A share is taken over this many calls: few enough to be noticed within an execution or two, enough that single odd calls are no alarm."""
SHARE_MAX = 0.2
"""Above it most likely a rule is missing; harnesses whose rules are right have next to none."""
ALARM_EVERY_S = 600.0
"""An alarm for one type of execution at most this often."""


class UnknownShare:
    """Windows of WINDOW_CALLS calls, one after the other, for each type of execution."""

    def __init__(self) -> None:
        self._windows: dict[str, tuple[int, int]] = {}
        """Type → (calls, unknown ones) since its last window ended."""
        self._alarmed_at_s: dict[str, float] = {}

    def count(self, task_type: str, is_unknown: bool, now_s: float) -> float | None:
        """The share of unknown calls when a window ends with more than SHARE_MAX and an alarm is due; else None."""
        calls, unknown = self._windows.get(task_type, (0, 0))
        calls, unknown = calls + 1, unknown + is_unknown
        if calls < WINDOW_CALLS:
            self._windows[task_type] = (calls, unknown)
            return None
        del self._windows[task_type]
        is_due = now_s - self._alarmed_at_s.get(task_type, float("-inf")) >= ALARM_EVERY_S
        if unknown <= SHARE_MAX * calls or not is_due:
            return None
        self._alarmed_at_s[task_type] = now_s
        return unknown / calls

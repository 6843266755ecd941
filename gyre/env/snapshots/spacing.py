"""After how many turns the next snapshot is due (C4). Pure.

A snapshot costs c seconds, a turn s seconds, failures come at λ a second. With a snapshot every n turns each second of work pays c / (n s) for
snapshots, and a failure, in the middle of an interval on average, loses n s / 2 seconds of it:

    cost(n) = c / (n s) + λ n s / 2        least at n s = √(2 c / λ)

J. W. Young, A first order approximation to the optimum checkpoint interval, CACM 17(9), 1974, equation 2; J. T. Daly, A higher order estimate of the
optimum checkpoint interval for restart dumps, FGCS 22(3), 2006, shows it to be near the optimum while c is small against 1 / λ, which it is here.
"""

import math

import msgspec

PRIOR_FAILURES, PRIOR_S = 1.0, 3600.0
"""What is believed before anything was seen: a failure an hour. It weighs as much as one hour watched."""
MEMORY = 200
"""Measurements that a running mean remembers: a task that gets slower is noticed after about so many turns."""
TURNS_MAX = 1000
"""A rollback loses at most so many turns, however cheap they seem."""


class Mean(msgspec.Struct):
    """A running mean; None before the first measurement."""

    value: float | None = None
    count: int = 0

    def add(self, measured: float) -> None:
        self.count = min(self.count + 1, MEMORY)
        before = self.value if self.value is not None else measured
        self.value = before + (measured - before) / self.count


class Spacing(msgspec.Struct):
    """Of one type of task. All of a process's executions of this type measure for each other."""

    snapshot_s: Mean = msgspec.field(default_factory=Mean)
    step_s: Mean = msgspec.field(default_factory=Mean)
    """Seconds of a turn, the model's share included: that is what a failure loses."""
    failures: int = 0
    watched_s: float = 0.0

    def took(self, seconds: float) -> None:
        """A snapshot."""
        self.snapshot_s.add(seconds)

    def stepped(self, seconds: float) -> None:
        """A turn went well."""
        self.step_s.add(seconds)
        self.watched_s += seconds

    def failed(self) -> None:
        """A step that made it necessary to go back."""
        self.failures += 1

    @property
    def failure_rate_per_s(self) -> float:
        return (PRIOR_FAILURES + self.failures) / (PRIOR_S + self.watched_s)

    def interval_turns(self) -> int:
        """Turns from one snapshot to the next; 1 while nothing has been measured."""
        if self.snapshot_s.value is None or self.step_s.value is None:
            return 1
        return interval_turns(self.snapshot_s.value, self.step_s.value, self.failure_rate_per_s)

    def is_due(self, turns: int) -> bool:
        """`turns` after the last one."""
        return turns >= self.interval_turns()


def cost_share(turns: float, snapshot_s: float, step_s: float, failure_rate_per_s: float) -> float:
    """Seconds lost for each second of work."""
    return snapshot_s / (turns * step_s) + failure_rate_per_s * turns * step_s / 2


def interval_turns(snapshot_s: float, step_s: float, failure_rate_per_s: float) -> int:
    """The whole number of turns with the least cost, from 1 to TURNS_MAX."""
    if step_s <= 0 or failure_rate_per_s <= 0:
        return TURNS_MAX
    best = math.sqrt(2 * max(snapshot_s, 0.0) / failure_rate_per_s) / step_s
    below = max(1, min(TURNS_MAX, math.floor(min(best, TURNS_MAX))))
    above = min(below + 1, TURNS_MAX)
    return min(below, above, key=lambda turns: cost_share(turns, snapshot_s, step_s, failure_rate_per_s))

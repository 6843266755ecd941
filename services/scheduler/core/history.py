"""What has been seen of late, for whoever plans (elastic_plus): whole groups, how decoding slows under load, what a publish costs.

Everything here production knows once an execution has ended: the tokens that it sampled and how long it took. Tokens, not seconds, are its work: an
execution that ran on crowded cells took longer and would have taken less elsewhere.
"""

import msgspec

GROUPS_REMEMBERED = 300
"""Whole groups for a bootstrap: enough that the tail of the longest tenth has thirty of them, few enough that a drift is followed."""
EXECUTIONS_REMEMBERED = 512
"""Memory of the fit of speed against load."""
PRIOR_SLOWDOWN = 0.7
"""Of time per token from an empty to a full cell, relative; what is believed where all executions have met the same load."""
PRIOR_SPREAD = 0.03
"""Standard deviation of load at which the observations begin to outweigh the prior."""
SLOWDOWN_MAX = 8.0
LEARNING_PUBLISH = 0.25


class Ended(msgspec.Struct, array_like=True):
    """A train group whose members have all ended."""

    task_type: str
    tokens: list[int]
    """Sampled by each member."""
    cut: list[bool]
    """The wall limit ended it: it would have sampled more."""
    wall_s: float


class History(msgspec.Struct):
    """Folded from dispatches, starts, endings, role changes, updates and publishes; bounded."""

    groups: list[Ended] = []
    """The newest GROUPS_REMEMBERED."""
    seen: int = 0
    """Groups ever remembered."""
    load: float = 0.0
    """min(1, w/C_R) since `at_s`."""
    load_s: float = 0.0
    """∫ load dt up to `at_s`."""
    at_s: float = 0.0
    weight: float = 0.0
    sum_x: float = 0.0
    sum_y: float = 0.0
    sum_xx: float = 0.0
    sum_xy: float = 0.0
    """Of executions: x = mean load while it ran, y = seconds per token; exponential memory, weighted by tokens (each is a measurement)."""
    publish_s: float = 0.0
    """Between a burst's last update and its publish, smoothed."""
    updated_at_s: float = 0.0

    def to(self, now_s: float, waterlevel: int, capacity: int) -> None:
        """Go on to `now_s`; from there on so many are unfinished and can be served."""
        if now_s > self.at_s:
            self.load_s += self.load * (now_s - self.at_s)
            self.at_s = now_s
        self.load = waterlevel / capacity if 0 < waterlevel < capacity else float(waterlevel > 0)

    def ran(self, tokens: int, lasted_s: float, load: float) -> None:
        """An execution has sampled `tokens` in `lasted_s` at this mean load."""
        if tokens <= 0 or lasted_s <= 0.0:
            return
        kept = 1.0 - 1.0 / EXECUTIONS_REMEMBERED
        self.weight = kept * self.weight + tokens
        self.sum_x = kept * self.sum_x + tokens * load
        self.sum_y = kept * self.sum_y + lasted_s
        self.sum_xx = kept * self.sum_xx + tokens * load * load
        self.sum_xy = kept * self.sum_xy + lasted_s * load

    def remember(self, ended: Ended) -> None:
        if ended.tokens:
            self.groups.append(ended)
            self.seen += 1
            del self.groups[:-GROUPS_REMEMBERED]

    def published(self, now_s: float) -> None:
        took_s = max(0.0, now_s - self.updated_at_s)
        self.publish_s += (took_s - self.publish_s) * (LEARNING_PUBLISH if self.publish_s else 1.0)

    def speed(self) -> tuple[float, float]:
        """(seconds per token on an empty cell, slowdown a): an execution takes tokens · first · (1 + a · load). (0, prior) before any has ended.

        Least squares of y on x with a ridge towards the prior slowdown, so that a cluster which always is equally loaded gives a sane answer.
        """
        if self.weight == 0.0:
            return 0.0, PRIOR_SLOWDOWN
        x, y = self.sum_x / self.weight, self.sum_y / self.weight
        variance = max(0.0, self.sum_xx / self.weight - x * x)
        covariance = self.sum_xy / self.weight - x * y
        prior_slope = PRIOR_SLOWDOWN * y / (1.0 + PRIOR_SLOWDOWN * x)
        slope = (covariance + PRIOR_SPREAD**2 * prior_slope) / (variance + PRIOR_SPREAD**2)
        slope = max(0.0, slope)
        empty = y - slope * x
        if slope > SLOWDOWN_MAX * empty:  # implausible, or at zero load not even positive
            empty = y / (1.0 + SLOWDOWN_MAX * x)
            slope = SLOWDOWN_MAX * empty
        return empty, slope / empty

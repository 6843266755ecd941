"""What has been seen of late, for whoever plans (elastic_plus, what-if): whole groups, how decoding slows under load, what a publish costs.

Everything here production knows once an execution has ended: the tokens that it sampled and how long it took. Tokens, not seconds, are its
work: an execution that ran on crowded cells took longer and would have taken less elsewhere.

Speed under load is a regression: an execution that spent t_b seconds while the load was in band b sampled Σ_b v_b · t_b tokens. It sees
many loads, so neither its mean load nor its mean speed would do; the normal equations of all of them together have the v_b as their answer.
What is forgotten is not scaled down at each ending: each execution weighs more than the one before it, so only the bands that it met are touched.
"""

import math
from collections.abc import Sequence

import msgspec

GROUPS_REMEMBERED = 300
"""Whole groups for a bootstrap: enough that the tail of the longest tenth has thirty of them, few enough that a drift is followed."""
EXECUTIONS_REMEMBERED = 512
"""Exponential memory of the regression."""
KEPT = 1.0 - 1.0 / EXECUTIONS_REMEMBERED
BANDS = 5
"""Of load, equally wide: each its own speed."""
WEIGHT_MAX = 1e9
"""Of the newest execution against the first; then all are scaled down, once in some ten thousand endings."""
PRIOR_SLOWDOWN = 0.7
"""Of time per token from an empty to a full cell, relative; what is believed of bands in which nothing ran."""
PRIOR_EXECUTIONS = 1.0
"""The prior weighs like so many executions in each band."""
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
    load: float = 0.0
    """min(1, w/C_R) since `at_s`."""
    at_s: float = 0.0
    passed_s: list[float] = msgspec.field(default_factory=lambda: [0.0] * BANDS)
    """Time spent in each band of load."""
    load_s: list[float] = msgspec.field(default_factory=lambda: [0.0] * BANDS)
    """∫ load dt in each band: its mean load is load_s / passed_s."""
    products: list[list[float]] = msgspec.field(default_factory=lambda: [[0.0] * BANDS for _ in range(BANDS)])
    rates: list[float] = msgspec.field(default_factory=lambda: [0.0] * BANDS)
    """Normal equations: Σ w f fᵀ and Σ w f · (tokens per second), f = shares of an execution's time in the bands, w = its weight."""
    weight: float = 1.0
    """Of the newest execution; older ones by 1 − 1/EXECUTIONS_REMEMBERED each."""
    publish_s: float = 0.0
    """Between a burst's last update and its publish, smoothed."""
    updated_at_s: float = 0.0

    def to(self, now_s: float, waterlevel: int, capacity: int) -> None:
        """Go on to `now_s`; from there on so many are unfinished and can be served."""
        passed_s = now_s - self.at_s
        if passed_s > 0.0:
            band = min(BANDS - 1, int(self.load * BANDS))
            self.passed_s[band] += passed_s
            self.load_s[band] += self.load * passed_s
            self.at_s = now_s
        self.load = waterlevel / capacity if 0 < waterlevel < capacity else float(waterlevel > 0)

    def ran(self, tokens: int, since_s: Sequence[float]) -> None:
        """An execution has sampled `tokens` since the bands' times were `since_s`."""
        total_s, met = 0.0, []
        for band, now_s in enumerate(self.passed_s):
            if now_s > since_s[band]:
                met.append((band, now_s - since_s[band]))
                total_s += now_s - since_s[band]
        if tokens <= 0 or not met:
            return
        rate = tokens / total_s
        self.weight /= KEPT
        for band, spent_s in met:
            weighed, row = self.weight * spent_s / total_s, self.products[band]
            self.rates[band] += weighed * rate
            for other, also_s in met:
                row[other] += weighed * also_s / total_s
        if self.weight > WEIGHT_MAX:
            self.products, self.rates = self.normal_equations()
            self.weight = 1.0

    def normal_equations(self) -> tuple[list[list[float]], list[float]]:
        """The normal equations in which the newest execution weighs 1."""
        scale = 1.0 / self.weight
        return [[scale * value for value in row] for row in self.products], [scale * value for value in self.rates]

    def remember(self, ended: Ended) -> None:
        if ended.tokens:
            self.groups.append(ended)
            del self.groups[:-GROUPS_REMEMBERED]

    def published(self, now_s: float) -> None:
        took_s = max(0.0, now_s - self.updated_at_s)
        self.publish_s += (took_s - self.publish_s) * (LEARNING_PUBLISH if self.publish_s else 1.0)

    def speeds(self) -> list[tuple[float, float, float]]:
        """(load, tokens per second of an execution, weight) of each band in which something ran; empty before any execution has ended.

        The weight goes as the root of the time spent there: the rarest loads are those that another policy may meet often.
        """
        products, rates = self.normal_equations()
        if sum(map(sum, products)) <= 0.0:
            return []
        loads = [
            load / passed if passed > 0.0 else (band + 0.5) / BANDS
            for band, (load, passed) in enumerate(zip(self.load_s, self.passed_s, strict=True))
        ]
        weights = [sum(row) for row in products]
        roots = sum(map(math.sqrt, weights))
        shape = [1.0 / (1.0 + PRIOR_SLOWDOWN * load) for load in loads]
        scale = sum(rates) / sum(weight * s for weight, s in zip(weights, shape, strict=True))
        matrix = [
            [value + PRIOR_EXECUTIONS * (i == j) for j, value in enumerate(row)] for i, row in enumerate(products)
        ]
        right = [rate + PRIOR_EXECUTIONS * scale * s for rate, s in zip(rates, shape, strict=True)]
        return [
            (load, max(speed, 1e-9), math.sqrt(weight) / roots)
            for load, speed, weight in zip(loads, _solved(matrix, right), weights, strict=True)
            if weight > 0.0
        ]

    def speed(self) -> tuple[float, float]:
        """(seconds per token on an empty cell, slowdown a): an execution takes tokens · first · (1 + a · load). (0, prior) before any has ended.

        A straight line of time per token through the bands' speeds, by their weights.
        """
        points = [(load, 1.0 / speed, weight) for load, speed, weight in self.speeds()]
        if not points:
            return 0.0, PRIOR_SLOWDOWN
        x = sum(weight * load for load, _, weight in points)
        y = sum(weight * token_s for _, token_s, weight in points)
        variance = sum(weight * (load - x) ** 2 for load, _, weight in points)
        covariance = sum(weight * (load - x) * (token_s - y) for load, token_s, weight in points)
        slope = max(0.0, covariance / variance) if variance > 1e-6 else PRIOR_SLOWDOWN * y / (1.0 + PRIOR_SLOWDOWN * x)
        empty = y - slope * x
        if slope > SLOWDOWN_MAX * empty:  # implausible, or at zero load not even positive
            empty = y / (1.0 + SLOWDOWN_MAX * x)
            slope = SLOWDOWN_MAX * empty
        return empty, slope / empty


def _solved(matrix: list[list[float]], right: list[float]) -> list[float]:
    """x of a symmetric positive definite matrix · x = right, by elimination."""
    size = len(right)
    rows = [[*row, value] for row, value in zip(matrix, right, strict=True)]
    for pivot in range(size):
        for below in range(pivot + 1, size):
            factor = rows[below][pivot] / rows[pivot][pivot]
            rows[below] = [value - factor * above for value, above in zip(rows[below], rows[pivot], strict=True)]
    found = [0.0] * size
    for pivot in reversed(range(size)):
        known = sum(rows[pivot][column] * found[column] for column in range(pivot + 1, size))
        found[pivot] = (rows[pivot][size] - known) / rows[pivot][pivot]
    return found

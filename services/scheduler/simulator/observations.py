"""What the paper says about its run (arXiv 2609.33848), and how far a calibration is from it."""

import math
import statistics
from collections.abc import Iterator

import msgspec

from services.scheduler.simulator.measures import Result
from services.scheduler.simulator.rows import Calibration, Row, rows, spec_of
from services.scheduler.simulator.run import simulate
from services.scheduler.simulator.spec import Spec

BASE = "E0"
EXECUTION_H, QUERY_H, SLACK_SHARE, EXPOSED_SHARE = 1.93, 2.96, 0.2085, 0.0
"""Of E0: mean execution, mean slowest of a group; and of "training is entirely hidden behind rollout with 20.85 % slack" the share of the
trainers' node-seconds in which they wait for groups (training could be so much slower and keep up) and the share of the time in which nothing
runs."""
WEIGHTS = {"slack": 1 / 3, "exposed": 1 / 8, "execution": 2 / 3, "query": 2 / 3}
"""What an error in the fit counts beside a row's. The slack's is a third because the paper does not say how it measured it, the exposed share's an
eighth because every burst whose last group ends last has some."""
ROW_ERROR_MAX, EXCESS_WEIGHT = 0.055, 0.5
"""What the worst has beyond this is punished on top of the mean square, so that a fit has no outlier."""
ORDER_FACTOR, ORDER_WEIGHT = 1.03, 0.3
"""Two rows that the paper has further apart than this must not change places."""
FIT_STEPS = 12
SCREEN_FACTOR = 1.25
"""One seed is off by so much of a loss now and then."""
HARD_FIRST = ("C0", "C3", "E1", "A2")
"""Rows that few calibrations fit are looked at first, so that the others are not simulated in vain."""


class Observation(msgspec.Struct, frozen=True):
    """One number of the paper beside the simulator's."""

    name: str
    paper: float
    ours: float

    @property
    def error(self) -> float:
        """Relative for times, a difference for shares."""
        return self.ours - self.paper if self.name in ("slack", "exposed") else self.ours / self.paper - 1.0


def observe(chosen: Calibration, seeds: range) -> Iterator[Observation]:
    """All 14, one by one: slack, exposed share, mean execution, mean query, then ten rows relative to E0; the first 12 steps, mean over seeds.

    Lazy, so that a search stops at a calibration that is hopeless already.
    """
    base = _runs(next(row for row in rows() if row.row == BASE), chosen, seeds)
    yield Observation("slack", SLACK_SHARE, statistics.fmean(result.trainer_wait_share for result in base))
    yield Observation("exposed", EXPOSED_SHARE, statistics.fmean(result.exposed_share for result in base))
    yield Observation("execution", EXECUTION_H, statistics.fmean(result.execution_h for result in base))
    yield Observation("query", QUERY_H, statistics.fmean(result.query_h for result in base))
    for row in sorted(rows(), key=lambda row: row.row not in HARD_FIRST):
        if row.paper is not None and row.row != BASE:
            pairs = zip(_runs(row, chosen, seeds), base, strict=True)
            ours = statistics.fmean(mine.first_steps_h / theirs.first_steps_h for mine, theirs in pairs)
            readings = [paper for paper in (row.paper, row.paper_other) if paper is not None]
            yield Observation(row.row, min(readings, key=lambda paper: abs(ours / paper - 1.0)), ours)


def _runs(row: Row, chosen: Calibration, seeds: range) -> list[Result]:
    spec = _short(spec_of(row, chosen))
    return [simulate(spec, seed) for seed in seeds]


def _short(spec: Spec) -> Spec:
    horizon = msgspec.structs.replace(spec.horizon, first_steps=FIT_STEPS, warmup_steps=0, steady_steps=0)
    return msgspec.structs.replace(spec, horizon=horizon)


NUM_OBSERVATIONS = 4 + sum(row.paper is not None and row.row != BASE for row in rows())


def loss(found: list[Observation], held_out: frozenset[str] = frozenset()) -> float:
    """Weighted root mean square error of what is not held out, what the worst has beyond ROW_ERROR_MAX, and by how much rows have changed places.

    Of a part it is a lower bound of the whole.
    """
    seen = [observation for observation in found if observation.name not in held_out]
    errors = [WEIGHTS.get(observation.name, 1.0) * abs(observation.error) for observation in seen]
    excess = max(0.0, max(errors, default=0.0) - ROW_ERROR_MAX)
    count = NUM_OBSERVATIONS - len(held_out)
    return (
        math.sqrt(sum(error**2 for error in errors) / count)
        + EXCESS_WEIGHT * excess
        + ORDER_WEIGHT * sum(fast_row / slow_row - 1.0 for slow_row, fast_row in misplaced(seen))
    )


def misplaced(found: list[Observation]) -> list[tuple[float, float]]:
    """Our times of pairs (slower in the paper by ORDER_FACTOR or more, faster in the paper) that have changed places."""
    times = [(1.0, 1.0)] + [(o.paper, o.ours) for o in found if o.name not in WEIGHTS]
    return [
        (ours, theirs)
        for paper, ours in times
        for other, theirs in times
        if paper > ORDER_FACTOR * other and ours < theirs
    ]


def worst_row(found: list[Observation]) -> float:
    """Largest relative error of a row, without its sign."""
    return max(abs(observation.error) for observation in found if observation.name not in WEIGHTS)


def loss_of(
    chosen: Calibration, seeds: range, held_out: frozenset[str] = frozenset(), give_up_at: float = math.inf
) -> float:
    """The loss, or infinity as soon as it is clearly above `give_up_at`: by the first seed alone, with room for its noise, then by all."""
    looks = [(seeds[:1], SCREEN_FACTOR * give_up_at)] if len(seeds) > 1 and give_up_at < math.inf else []
    found: list[Observation] = []
    for chosen_seeds, limit in [*looks, (seeds, give_up_at)]:
        found = []
        for observation in observe(chosen, chosen_seeds):
            found.append(observation)
            if loss(found, held_out) > limit:
                return math.inf
    return loss(found, held_out)


def rms(found: list[Observation]) -> float:
    """Of the rows only."""
    errors = [observation.error for observation in found if observation.name not in WEIGHTS]
    return math.sqrt(statistics.fmean(error**2 for error in errors))

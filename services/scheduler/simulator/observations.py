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
EXECUTION_H, QUERY_H, SLACK_SHARE = 1.93, 2.96, 0.2085
"""Of E0: mean execution, mean slowest of a group, and the share of the time in which nothing is left to train."""
SLACK_UNIT = 2.0
"""A slack that is wrong by two points weighs like a time that is wrong by one per cent."""
ROW_ERROR_MAX, EXCESS_WEIGHT = 0.06, 0.5
"""A row beyond this is punished on top of the mean square, so that a fit has no outlier."""
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
        """Relative for times; for the slack in points, halved."""
        return (self.ours - self.paper) / SLACK_UNIT if self.name == "slack" else self.ours / self.paper - 1.0


def observe(chosen: Calibration, seeds: range) -> Iterator[Observation]:
    """All 13, one by one: slack, mean execution, mean query, then ten rows relative to E0; the first 12 steps, mean over seeds.

    Lazy, so that a search stops at a calibration that is hopeless already.
    """
    base = _runs(next(row for row in rows() if row.row == BASE), chosen, seeds)
    yield Observation("slack", SLACK_SHARE, statistics.fmean(result.slack_share for result in base))
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


NUM_OBSERVATIONS = 3 + sum(row.paper is not None and row.row != BASE for row in rows())


def loss(found: list[Observation], held_out: frozenset[str] = frozenset()) -> float:
    """Root mean square error of what is not held out, and what the worst has beyond ROW_ERROR_MAX. Of a part it is a lower bound of the whole."""
    errors = [abs(observation.error) for observation in found if observation.name not in held_out]
    count = NUM_OBSERVATIONS - len(held_out)
    excess = max(0.0, max(errors, default=0.0) - ROW_ERROR_MAX)
    return math.sqrt(sum(error**2 for error in errors) / count) + EXCESS_WEIGHT * excess


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
    errors = [observation.error for observation in found if observation.name not in ("slack", "execution", "query")]
    return math.sqrt(statistics.fmean(error**2 for error in errors))

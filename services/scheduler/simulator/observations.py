"""What the paper says about its runs (arXiv 2609.33848), and how far a calibration is from it."""

import math
import statistics

import msgspec

from services.scheduler.simulator.measures import Result
from services.scheduler.simulator.rows import Calibration, Row, rows, spec_of
from services.scheduler.simulator.run import simulate
from services.scheduler.simulator.spec import Spec

BASE = "E0"
EXECUTION_H, QUERY_H, SLACK_SHARE = 1.93, 2.96, 0.2085
"""Mean execution, mean slowest of a group, and the share of E0's time in which nothing is left to train, training being hidden behind rollout."""
SCALE = {"slack": 2.0}
"""An error of one point in a share weighs as so many per cent of a time."""
FIT_STEPS = 12


class Observation(msgspec.Struct, frozen=True):
    """One number of the paper beside the simulator's."""

    name: str
    paper: float
    ours: float

    @property
    def error(self) -> float:
        """Relative for times, absolute for shares."""
        return self.ours - self.paper if self.name == "slack" else self.ours / self.paper - 1.0


def observe(chosen: Calibration, seeds: range, only: list[Row] | None = None) -> list[Observation]:
    """All 13: ten rows relative to E0, slack, mean execution, mean query; or those rows only. The first 12 steps of each, mean over seeds."""
    table = [row for row in only or rows() if row.paper is not None]
    first = {row.row: [simulate(_short(spec_of(row, chosen)), seed) for seed in seeds] for row in [_base(), *table]}
    base = first[BASE]
    found = [Observation(row.row, row.paper, _ratio(first[row.row], base)) for row in table if row.row != BASE]
    return [*found, *_of_base(base)]


def _base() -> Row:
    return next(row for row in rows() if row.row == BASE)


def _ratio(results: list[Result], base: list[Result]) -> float:
    return statistics.fmean(
        ours.first_steps_h / theirs.first_steps_h for ours, theirs in zip(results, base, strict=True)
    )


def _of_base(base: list[Result]) -> list[Observation]:
    return [
        Observation("slack", SLACK_SHARE, statistics.fmean(result.slack_share for result in base)),
        Observation("execution", EXECUTION_H, statistics.fmean(result.execution_h for result in base)),
        Observation("query", QUERY_H, statistics.fmean(result.query_h for result in base)),
    ]


def _short(spec: Spec) -> Spec:
    horizon = msgspec.structs.replace(spec.horizon, first_steps=FIT_STEPS, warmup_steps=0, steady_steps=0)
    return msgspec.structs.replace(spec, horizon=horizon)


def fit_error(found: list[Observation], held_out: frozenset[str] = frozenset()) -> float:
    """Root mean square of the weighted errors of what is not held out."""
    squares = [
        (observation.error / SCALE.get(observation.name, 1.0)) ** 2
        for observation in found
        if observation.name not in held_out
    ]
    return math.sqrt(statistics.fmean(squares))

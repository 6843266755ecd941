"""`gyre simulate --ablation`: every row of the paper's table on fresh seeds, the steady state, the best of each mode, and the lower bound."""

import statistics
from collections.abc import Iterable
from typing import Any

from services.scheduler.simulator.measures import Result
from services.scheduler.simulator.rows import Calibration, Row, rows, spec_of
from services.scheduler.simulator.spec import Spec
from services.scheduler.simulator.sweep import Job, progress, run_all
from services.scheduler.simulator.tune import best, knobs_of, with_steps

BASE = "E0"
FRESH_SEED = 1_001
"""Seeds of the ablation start here; a calibration is fitted on smaller ones."""
SEEDS = 5
FIRST_SEEDS = 20
"""At least so many for the first 12 steps: short runs are cheap and vary by up to 5 % from seed to seed."""


def ablation(
    chosen: Calibration, seeds: int = SEEDS, is_tuned: bool = True, steady_steps: int = 60
) -> Iterable[dict[str, Any]]:
    """One object for each row, in the table's order, then the lower bound; times relative to E0 of the same seed."""
    table = rows()
    specs = {row.row: with_steps(spec_of(row, chosen), steady_steps) for row in table}
    runs = range(FRESH_SEED, FRESH_SEED + seeds)
    jobs: list[Job] = [(name, spec, seed) for name, spec in specs.items() for seed in runs]
    found = run_all(jobs, progress("ablation"))
    firsts = run_all(
        [(name, with_steps(spec, 0), seed) for name, spec in specs.items() for seed in _first_seeds(seeds)],
        progress("first steps"),
    )
    first = {name: [firsts[name, seed].first_steps_h for seed in _first_seeds(seeds)] for name in specs}
    results = {name: [found[name, seed] for seed in runs] for name in specs}
    base = results[BASE]
    tuned = best(table, chosen, steady_steps) if is_tuned else {}
    base_step_h = statistics.fmean(result.step_h for result in base)
    for row in table:
        ratios = [ours / theirs for ours, theirs in zip(first[row.row], first[BASE], strict=True)]
        yield _row(row, specs[row.row], results[row.row], base, ratios) | _tuned(tuned.get(row.row), base_step_h)
    yield _bound(base)


def _first_seeds(seeds: int) -> range:
    return range(FRESH_SEED, FRESH_SEED + max(seeds, FIRST_SEEDS))


def _row(row: Row, spec: Spec, results: list[Result], base: list[Result], first: list[float]) -> dict[str, Any]:
    steady = [ours.step_h / theirs.step_h for ours, theirs in zip(results, base, strict=True)]

    def mean(field: str) -> float:
        return round(statistics.fmean(getattr(result, field) for result in results), 4)

    return {
        "row": row.row, "what": row.what, "paper": row.paper,
        "paper_other": row.paper_other,
        "ours_12": round(statistics.fmean(first), 4), "ours_12_spread": _spread(first),
        "ours_steady": round(statistics.fmean(steady), 4), "ours_steady_spread": _spread(steady),
        "staleness_mean": mean("staleness_mean"), "staleness_max": max(result.staleness_max for result in results),
        "token_staleness_mean": mean("token_staleness_mean"), "staleness_deciles": [
            round(statistics.fmean(tenth), 3) for tenth in zip(*(result.staleness_deciles for result in results), strict=True)
        ],
        "idle_share": mean("idle_share"), "unused_share": mean("unused_share"), "slack_share": mean("slack_share"),
        "trainer_wait_share": mean("trainer_wait_share"), "exposed_share": mean("exposed_share"), "timed_out_share": mean("timed_out_share"),
        "execution_h": mean("execution_h"), "query_h": mean("query_h"), "step_h": mean("step_h"), "seeds": len(results),
        "knobs": knobs_of(spec),
    }  # fmt: skip


def _spread(values: list[float]) -> float:
    """Standard deviation over seeds."""
    return round(statistics.stdev(values), 4) if len(values) > 1 else 0.0


def _tuned(found: dict[str, Any] | None, base_step_h: float) -> dict[str, Any]:
    if found is None:
        return {"best_tuned": None}
    return {"best_tuned": round(found["step_h"] / base_step_h, 4), "best_tuned_knobs": found["knobs"]}


def _bound(base: list[Result]) -> dict[str, Any]:
    """All node-hours of work over all nodes, for the same groups as E0's."""
    shares = [result.bound_step_h / result.step_h for result in base]
    return {
        "row": "bound", "what": "lower bound: node-hours of work over nodes", "paper": None, "ours_12": None,
        "ours_steady": round(statistics.fmean(shares), 4), "ours_steady_spread": _spread(shares), "staleness_mean": None, "staleness_max": None,
        "best_tuned": None, "idle_share": 0.0,
    }  # fmt: skip

"""elastic_plus against the paper's policy: `gyre bench elastic-plus --json [--workloads 200] [--seed 7001] [--minutes 60] [--measure token]`.

`--parts account` says where the node-hours go (elastic_parts.py): E0's, and those of two-way lockstep at its mean staleness, with real durations too.

Steady state, the same cluster, groups and promised staleness for both; the planner runs inside each run and sees facts only. Everything is relative
to E0 of the same seed. What the numbers mean and how they came out: docs/elastic-plus.md. About ten seconds of CPU a workload.
"""

import argparse
import json
import math
import random
import statistics
import sys
import time
from typing import Any

import msgspec

from benchmarks.elastic_parts import accounted
from services.scheduler.planner import Planner, strict_max
from services.scheduler.simulator import Result, Spec, changed, parse, simulate
from services.scheduler.simulator.rows import Calibration, calibration, rows, spec_of

WARMUP_STEPS, STEADY_STEPS = 36, 60
"""The warm-up leaves room for two plans."""
FIRST_SEED = 7_001
"""Of the calibrated comparison; the policy was frozen before these and --seed were used."""
PACKED = 0.748
"""Training cost that tree packing leaves (B8)."""
TUNED_FIRST_SEED = 9_001
DRIFT_STEPS = 60
WORK_GROWTH, TRAINING_GROWTH = 2.0, 0.5


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--json", action="store_true")
    asked.add_argument("--workloads", type=int, default=200)
    asked.add_argument("--seed", type=int, default=FIRST_SEED)
    asked.add_argument("--seeds", type=int, default=3, help="of the calibrated comparison and of the drift")
    asked.add_argument("--calibrations", default="f1,f2,paper")
    asked.add_argument("--parts", default="calibrated,random,drift")
    asked.add_argument(
        "--minutes",
        type=float,
        default=math.inf,
        help="begin no further workload after so long; the answer says how many were run",
    )
    asked.add_argument(
        "--measure", choices=("dispatch", "token"), default="dispatch", help="of which staleness plans keep the mean"
    )
    chosen = asked.parse_args()
    parts = chosen.parts.split(",")
    names = [name for name in chosen.calibrations.split(",") if name]
    found: dict[str, Any] = {}
    if "calibrated" in parts:
        found["calibrated"] = {name: of_calibration(calibration(name), chosen.seeds, chosen.measure) for name in names}
    if "account" in parts:
        found["account"] = {name: of_account(calibration(name), chosen.seeds) for name in names}
    if "drift" in parts:
        found["drift"] = {
            name: drift(calibration(name), range(FIRST_SEED, FIRST_SEED + chosen.seeds)) for name in names
        }
    if "random" in parts:
        found["random"] = of_random(chosen.workloads, chosen.seed, chosen.measure, chosen.minutes * 60.0)
    print(json.dumps(found) if chosen.json else json.dumps(found, indent=2))


# The calibrated workload, the real durations, packed training


def of_calibration(chosen: Calibration, seeds: int, measure: str) -> dict[str, Any]:
    """The calibration's own workload; the same with the durations of real agent runs, scaled to the same mean work; with packed training."""
    base, real = _loads(chosen, plan_measure=measure)
    packed = _replaced(base, "training", unique_token_share=PACKED)
    runs = range(FIRST_SEED, FIRST_SEED + seeds)
    return {
        "own": compared(base, base, runs), "real_durations": compared(real, real, runs), "packed": compared(base, packed, runs),
    }  # fmt: skip


def _loads(chosen: Calibration, **knobs: Any) -> tuple[Spec, Spec]:
    """E0 on the calibration's own workload, and on real durations of the same mean."""
    base = spec_of(next(row for row in rows() if row.row == "E0"), chosen, **knobs)
    mean_h = base.workload.median_h * math.exp(base.workload.sigma**2 / 2)
    return base, _replaced(base, "workload", kind="agent_runs", mean_h=mean_h)


def of_account(chosen: Calibration, seeds: int) -> dict[str, Any]:
    """Shares of node-hours, means over seeds: E0's, and those of two-way lockstep, μ = 2s + 1 and φ = 0, without plans."""
    found = {}
    for name, spec in zip(("own", "real_durations"), _loads(chosen), strict=True):
        burst = math.floor(2 * spec.staleness_steps) + 1
        lockstep = changed(
            spec, mode="elastic_plus", plan_every_bursts=0, steps_per_publish=burst, extra_depth_steps=spec.staleness_steps - (burst - 1) / 2
        )  # fmt: skip
        for policy, tried in (("e0", spec), ("lockstep", _replaced(lockstep, "cluster", rebalance=True))):
            runs = [accounted(_lasting(tried), seed) for seed in range(FIRST_SEED, FIRST_SEED + seeds)]
            found[f"{name}_{policy}"] = {
                cause: _mean([run.get(cause, 0.0) for run in runs]) for cause in sorted(set().union(*runs))
            }
    return found


def compared(base: Spec, other: Spec, seeds: range) -> dict[str, Any]:
    """elastic_plus on `other` against E0 on `base`."""
    theirs = [simulate(_lasting(base), seed) for seed in seeds]
    ours = [plus(other, seed, cap_of(base, result)) for seed, result in zip(seeds, theirs, strict=True)]
    return _said(theirs, ours)


def plus(spec: Spec, seed: int, cap: int) -> Result:
    """One run of elastic_plus with its planner, from E0's settings, under a hard cap on staleness."""
    return _planned(_lasting(spec), seed, cap)


def cap_of(spec: Spec, theirs: Result) -> int:
    """The maximum that E0 has: what it promises under strict oldest first, or what it showed on the very groups, for it has no cap."""
    return max(_promised(spec), theirs.staleness_max)


def _promised(spec: Spec) -> int:
    """The maximum of its knobs under strict oldest first, steps."""
    return strict_max(spec.scheduler, spec.scheduler.dispatch)


def _said(theirs: list[Result], ours: list[Result]) -> dict[str, Any]:
    ratio = _mean([over(a, b) for a, b in zip(ours, theirs, strict=True)])
    bound = _mean([b.bound_step_h / b.step_h for b in theirs])
    return {
        "over_e0": ratio, "bound_over_e0": bound, "gap_closed": round((1 - ratio) / (1 - bound), 3), "seeds": len(ours),
        "staleness_mean": [_mean([r.staleness_mean for r in side]) for side in (theirs, ours)],
        "staleness_max": [max(r.staleness_max for r in side) for side in (theirs, ours)],
        "token_staleness_mean": [_mean([r.token_staleness_mean for r in side]) for side in (theirs, ours)],
        "timed_out_share": [_mean([r.timed_out_share for r in side]) for side in (theirs, ours)],
        "staleness_deciles": [
            [_mean(list(tenth)) for tenth in zip(*(r.staleness_deciles for r in side), strict=True)] for side in (theirs, ours)
        ],
    }  # fmt: skip


def over(ours: Result, theirs: Result) -> float:
    """Time for a group over theirs."""
    return ours.group_h / theirs.group_h


# Random workloads


def of_random(count: int, seed: int, measure: str, limit_s: float) -> dict[str, Any]:
    """`count` workloads drawn with `seed`, as far as the time goes; against E0 as set and against E0 with its burst tuned at the same staleness."""
    rng, found, begun_s = random.Random(f"workloads {seed}"), [], time.monotonic()
    for number in range(count):
        if time.monotonic() - begun_s > limit_s:
            break
        spec = changed(drawn(rng), plan_measure=measure)
        run = TUNED_FIRST_SEED + number
        theirs = simulate(_lasting(spec), run)
        ours = plus(spec, run, cap_of(spec, theirs))
        found.append(
            {
                "over_e0": over(ours, theirs),
                "over_tuned": over(ours, tuned(spec, run, theirs)),
                "bound": theirs.bound_step_h / theirs.step_h,
                "stale": ours.staleness_mean - theirs.staleness_mean,
                "token_stale": ours.token_staleness_mean - theirs.token_staleness_mean,
                "max": ours.staleness_max - cap_of(spec, theirs),
                "cut": ours.timed_out_share - theirs.timed_out_share,
            }
        )
        print(json.dumps({"workload": number} | found[-1]), file=sys.stderr, flush=True)
    return summary(found)


def summary(found: list[dict[str, float]]) -> dict[str, Any]:
    ratios = sorted(one["over_e0"] for one in found)
    return {
        "workloads": len(found), "mean": _mean(ratios), "worst": round(ratios[-1], 4), "best": round(ratios[0], 4),
        "median": round(statistics.median(ratios), 4), "over_tuned_mean": _mean([one["over_tuned"] for one in found]),
        "over_tuned_worst": round(max(one["over_tuned"] for one in found), 4), "bound_mean": _mean([one["bound"] for one in found]),
        "staleness_excess_max": round(max(one["stale"] for one in found), 4),
        "token_staleness_excess_max": round(max(one["token_stale"] for one in found), 4),
        "gap_closed": round((1 - _mean(ratios)) / (1 - _mean([one["bound"] for one in found])), 3),
        "promises_broken": sum(one["max"] > 0 for one in found),
        "timed_out_excess_mean": _mean([one["cut"] for one in found]),
    }  # fmt: skip


def drawn(rng: random.Random) -> Spec:
    """A workload, a cluster and training parameters. 16 nodes in 4 or 8 cells; E0 as the paper's run fits best: φ = 1/2, μ = 2s.

    slots a node 5–12; speed 1/(1 + a·x) with a .3–1.5, or a knee at .4–.8 with power .5–.9; four in five lognormal (median .5–1.6 h, σ .25–1,
    common share 0–.6), one in five real durations (mean .7–1.8 h); limit 4 h; N 4, 8 or 16; s 1, 1.5 or 2; a boundary fills .3–1.5 of the
    slots (this gives B); training costs .2–3 times the node-hours of decoding at full load, log-uniform.
    """
    cells, slots = rng.choice((4, 8)), rng.uniform(5.0, 12.0)
    if rng.random() < 0.5:
        speed = {"family": "hyperbolic", "slowdown": rng.uniform(0.3, 1.5)}
    else:
        speed = {"family": "knee", "knee": rng.uniform(0.4, 0.8), "power": rng.uniform(0.5, 0.9)}
    if rng.random() < 0.8:
        load: dict[str, Any] = {
            "median_h": rng.uniform(0.5, 1.6),
            "sigma": rng.uniform(0.25, 1.0),
            "group_share": rng.uniform(0.0, 0.6),
        }
        mean_h = load["median_h"] * math.exp(load["sigma"] ** 2 / 2)
    else:
        mean_h = rng.uniform(0.7, 1.8)
        load = {"kind": "agent_runs", "mean_h": mean_h}
    size, stale = rng.choice((4, 8, 16)), rng.choice((1.0, 1.5, 2.0))
    size = min(size, int(slots * 16 / cells))
    groups = max(2, round(rng.uniform(0.3, 1.5) * 16 * slots / size / (2 * stale + 0.5)))
    tree = {
        "cluster": {"nodes_per_cell": 16 // cells, "slots_per_node": slots, "speed": speed, "rebalance": True}, "workload": load,
        "scheduler": {
            "mode": "elastic", "cells": cells, "groups_per_step": groups, "group_size": size, "steps_per_publish": round(2 * stale),
            "extra_depth_steps": 0.5,
        },
    }  # fmt: skip
    spec = parse(tree)
    full_node_h = size * min(mean_h, 4.0) / spec.cluster.speed.at(1.0) / slots
    return _replaced(spec, "training", group_node_h=full_node_h * math.exp(rng.uniform(math.log(0.2), math.log(3.0))))


def tuned(spec: Spec, seed: int, as_set: Result) -> Result:
    """E0 with the best burst length at its mean staleness and strict maximum, chosen on a seed of its own; never worse than as set."""
    found = {}
    for burst in range(1, round(2 * spec.staleness_steps) + 2):
        other = changed(spec, steps_per_publish=burst, extra_depth_steps=spec.staleness_steps - (burst - 1) / 2)
        if _promised(other) <= _promised(spec):
            found[burst] = (simulate(_lasting(other, 12), 1).step_h, other)
    best = min(found.values(), key=lambda pair: pair[0])[1]
    if best.scheduler.steps_per_publish == spec.scheduler.steps_per_publish:
        return as_set
    return min(simulate(_lasting(best), seed), as_set, key=lambda result: result.step_h)


# Drift


def drift(chosen: Calibration, seeds: range) -> dict[str, float]:
    """Work doubles and training cost halves over DRIFT_STEPS: wall time of them all, over that of elastic_plus.

    Fixed splits are asynchronous with streaming; node split and burst are searched, once for the whole run (hindsight) and once for its first tenth.
    """
    base = _drifting(spec_of(next(row for row in rows() if row.row == "E0"), chosen), DRIFT_STEPS)
    theirs = [simulate(base, seed) for seed in seeds]
    e0 = _mean([result.first_steps_h for result in theirs])
    ours = _mean(
        [_planned(base, seed, cap_of(base, result)).first_steps_h for seed, result in zip(seeds, theirs, strict=True)]
    )
    splits = [_drifting(spec, DRIFT_STEPS) for spec in _splits(chosen)]
    whole = {index: simulate(spec, seeds[0]).first_steps_h for index, spec in enumerate(splits)}
    early = {
        index: simulate(_drifting(spec, DRIFT_STEPS // 10), seeds[0]).first_steps_h for index, spec in enumerate(splits)
    }
    hindsight, tenth = (splits[min(table, key=table.__getitem__)] for table in (whole, early))
    best, first = (_mean([simulate(spec, seed).first_steps_h for seed in seeds]) for spec in (hindsight, tenth))
    return {
        "hours": ours, "e0_over_ours": round(e0 / ours, 4), "best_split_over_ours": round(best / ours, 4),
        "first_tenth_split_over_ours": round(first / ours, 4), "best_training_nodes": hindsight.cell_nodes[0],
        "first_tenth_training_nodes": tenth.cell_nodes[0],
    }  # fmt: skip


def _splits(chosen: Calibration) -> list[Spec]:
    row = next(row for row in rows() if row.row == "A3")
    found = []
    for nodes in range(2, chosen.nodes, 2):
        for burst in range(1, int(2 * chosen.staleness_steps) + 2):
            found.append(
                spec_of(msgspec.structs.replace(row, cell_nodes=[nodes, "rest"]), chosen, steps_per_publish=burst)
            )
    return found


def _drifting(spec: Spec, steps: int) -> Spec:
    spec = _replaced(
        spec, "workload", work_growth=WORK_GROWTH, training_growth=TRAINING_GROWTH, drift_steps=DRIFT_STEPS
    )
    return _replaced(spec, "horizon", first_steps=steps, warmup_steps=0, steady_steps=0)


def _planned(spec: Spec, seed: int, cap: int) -> Result:
    spec = _replaced(
        _replaced(changed(spec, mode="elastic_plus"), "cluster", rebalance=True), "training", age_steps_max=cap
    )
    return simulate(spec, seed, Planner(spec.scheduler, 1, cap))


# Small things


def _lasting(spec: Spec, warmup_steps: int = WARMUP_STEPS) -> Spec:
    """One window for all bursts of up to five steps: 60 is a whole number of each."""
    return _replaced(spec, "horizon", warmup_steps=warmup_steps, steady_steps=STEADY_STEPS)


def _replaced(spec: Spec, section: str, **fields: Any) -> Spec:
    return msgspec.structs.replace(spec, **{section: msgspec.structs.replace(getattr(spec, section), **fields)})


def _mean(values: list[float]) -> float:
    return round(statistics.fmean(values), 4)


if __name__ == "__main__":
    main()

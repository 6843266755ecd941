"""The best of a mode: its μ (φ follows), its split and its cells searched at the staleness that all share. Baselines are tuned as hard as ours."""

import statistics
from collections import defaultdict
from contextlib import suppress
from typing import Any

import msgspec

from gyre.errors import InvalidInput
from services.scheduler.simulator.rows import Calibration, Row, spec_of
from services.scheduler.simulator.run import simulate
from services.scheduler.simulator.spec import Spec
from services.scheduler.simulator.sweep import progress, run_all

SCREEN_STEPS = 24
"""Steady steps in the first look, with one seed."""
FINALISTS = 4
"""Candidates of a row that are looked at again, with FINAL_SEEDS seeds of their own and the full horizon."""
FINAL_SEEDS = 3
FIRST_SEED = 501
"""Neither those of the fit nor those of the table."""
SPLIT_NODES = 2
"""Grid of splits, nodes."""
RELEASE_SHARES = (0.55, 0.7, 0.85, 1.0)
"""ρ, which only elastic_plus is free to choose."""


def best(table: list[Row], chosen: Calibration, steady_steps: int) -> dict[str, dict[str, Any]]:
    """Row → the best candidate's `step_h` and knobs. Rows that differ only in what is searched share their answer."""
    families: dict[tuple[Any, ...], list[str]] = defaultdict(list)
    members: dict[tuple[Any, ...], Row] = {}
    for row in table:
        family = (
            row.mode,
            row.streaming,
            row.role_transfer,
            row.standalone_cells > 0,
            msgspec.json.encode(row.scheduler),
        )
        families[family].append(row.row)
        members.setdefault(family, row)
    candidates = {
        (names[0], index): spec
        for family, names in families.items()
        for index, spec in enumerate(_candidates(members[family], chosen))
    }
    screened = run_all(
        [(key, with_steps(spec, SCREEN_STEPS), FIRST_SEED) for key, spec in candidates.items()],
        progress("tuning, first look"),
    )
    finals: list[tuple[str, int]] = []
    for names in families.values():
        keys = sorted(
            (key for key in candidates if key[0] == names[0]), key=lambda key: screened[key, FIRST_SEED].step_h
        )
        finals += keys[:FINALISTS]
    seeds = range(FIRST_SEED + 1, FIRST_SEED + 1 + FINAL_SEEDS)
    found = run_all(
        [(key, with_steps(candidates[key], steady_steps), seed) for key in finals for seed in seeds],
        progress("tuning, finalists"),
    )
    answer: dict[str, dict[str, Any]] = {}
    for names in families.values():
        mean_h = {
            key: statistics.fmean(found[key, seed].step_h for seed in seeds) for key in finals if key[0] == names[0]
        }
        key = min(mean_h, key=mean_h.__getitem__)
        answer |= {name: {"step_h": mean_h[key], "knobs": knobs_of(candidates[key])} for name in names}
    return answer


def _candidates(row: Row, chosen: Calibration) -> list[Spec]:
    specs = []
    for burst in range(1, int(2 * chosen.staleness_steps) + 2):
        for cells in _layouts(row, chosen):
            for share in RELEASE_SHARES if row.mode == "elastic_plus" else (1.0,):
                knobs = {"steps_per_publish": burst, "release_share": share}
                with suppress(InvalidInput):  # a cell too small for a group
                    specs.append(spec_of(msgspec.structs.replace(row, **cells), chosen, **knobs))
    return specs


def _layouts(row: Row, chosen: Calibration) -> list[dict[str, Any]]:
    if row.mode == "async":
        return [
            {"cell_nodes": [count, "rest"]} for count in range(SPLIT_NODES, chosen.nodes - SPLIT_NODES + 1, SPLIT_NODES)
        ]
    if row.standalone_cells:  # a pool beside standalone nodes
        return [{"cell_nodes": ["rest", count]} for count in range(SPLIT_NODES, chosen.nodes // 2 + 1, SPLIT_NODES)]
    if row.mode == "colocate":
        return [{}]
    return [{"cells": count} for count in (4, 8, 16) if chosen.nodes % count == 0]


def with_steps(spec: Spec, steady_steps: int) -> Spec:
    return msgspec.structs.replace(spec, horizon=msgspec.structs.replace(spec.horizon, steady_steps=steady_steps))


def simulate_steady(spec: Spec, steady_steps: int) -> float:
    """Hours of a step, mean over the finalists' seeds."""
    seeds = range(FIRST_SEED + 1, FIRST_SEED + 1 + FINAL_SEEDS)
    return statistics.fmean(simulate(with_steps(spec, steady_steps), seed).step_h for seed in seeds)


def knobs_of(spec: Spec) -> dict[str, Any]:
    chosen = spec.scheduler
    return {
        "steps_per_publish": chosen.steps_per_publish,
        "extra_depth_steps": chosen.extra_depth_steps,
        "release_share": chosen.release_share,
        "cell_nodes": spec.cell_nodes,
    }

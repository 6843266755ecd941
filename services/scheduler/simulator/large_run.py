"""The paper's 2.4T run, predicted from a calibration that never saw it: 4 cells × 48 nodes, 48 steps, 61.1 % of the queries past 4 h.

What is carried over and what is assumed: bursts, staleness, group sizes and the load curve as calibrated; the cluster serves as many executions and
trains as fast for its length as before (a model twenty times as large on six times the nodes: slots and cost per node are scaled with their number);
executions longer, by the one factor that makes 61.1 % of E0's queries last 4 h or more.
"""

import statistics
from typing import Any

import msgspec

from services.scheduler.simulator.rows import Calibration, rows, spec_of
from services.scheduler.simulator.run import simulate
from services.scheduler.simulator.spec import Spec, merged

NODES, CELLS, STEPS = 192, 4, 48
PAST_LIMIT_SHARE = 0.611
PAPER = {"A0": 134.55 / 75.42, "C0": 91.47 / 75.42}
"""Hours of 48 steps relative to elastic's: async and colocate."""
BISECTIONS = 12


def predict(chosen: Calibration, seeds: range) -> dict[str, dict[str, float]]:
    """Row → paper and ours, wall time of 48 steps relative to elastic's; the best of the rows of a mode is what the paper would have run."""
    factor = _work_factor(chosen, seeds[0])
    table = {row.row: row for row in rows()}
    hours = {}
    for name in ("E0", "A0", "A3", "C0", "C1", "C2"):
        spec = _large(spec_of(table[name], _scaled(chosen, factor)), chosen)
        hours[name] = statistics.fmean(simulate(spec, seed).first_steps_h for seed in seeds)
    return {
        name: {"paper": PAPER.get(name, float("nan")), "ours": hours[name] / hours["E0"]}
        for name in hours
        if name != "E0"
    }


def text_of(found: dict[str, dict[str, float]]) -> str:
    lines = ["predicted, never fitted: the 2.4T run on 4 cells × 48 nodes, 48 steps, relative to elastic"]
    for name, pair in found.items():
        paper = f"paper {pair['paper']:.2f}" if name in PAPER else " " * 10
        lines.append(f"  {name:<4} {paper}  ours {pair['ours']:.2f}")
    return "\n".join(lines)


def _scaled(chosen: Calibration, factor: float) -> Calibration:
    """Six times the nodes serve as many executions and train as many groups in the time: slots and cost per node follow."""
    ratio = NODES / chosen.nodes
    base = chosen.base
    changes: dict[str, Any] = {
        "cluster": {"slots_per_node": base["cluster"]["slots_per_node"] / ratio},
        "workload": {"median_h": base["workload"]["median_h"] * factor},
        "training": {"group_node_h": base["training"]["group_node_h"] * ratio * factor},
    }
    choices = {
        name: round(count * ratio) if name.endswith("_nodes") else count for name, count in chosen.choices.items()
    }
    return msgspec.structs.replace(chosen, nodes=NODES, base=merged(base, changes), choices=choices)


def _large(spec: Spec, chosen: Calibration) -> Spec:
    """The row's cells in the large cluster: elastic in 4, fixed splits in the same proportion."""
    scheduler, cluster = spec.scheduler, spec.cluster
    if scheduler.mode == "elastic" and not scheduler.standalone_cells:
        scheduler = msgspec.structs.replace(scheduler, cells=CELLS)
        cluster = msgspec.structs.replace(cluster, cell_nodes=[NODES // CELLS] * CELLS)
    elif scheduler.mode != "async" and scheduler.standalone_cells:
        standalone = round(spec.cell_nodes[-1] * NODES / chosen.nodes)
        cluster = msgspec.structs.replace(cluster, cell_nodes=[NODES - standalone, standalone])
    horizon = msgspec.structs.replace(spec.horizon, first_steps=STEPS, warmup_steps=0, steady_steps=0)
    return msgspec.structs.replace(spec, scheduler=scheduler, cluster=cluster, horizon=horizon)


def _work_factor(chosen: Calibration, seed: int) -> float:
    """Bisection on the share of E0's queries that the limit cuts or that last as long."""
    row = next(row for row in rows() if row.row == "E0")
    low, high = 0.25, 16.0
    for _ in range(BISECTIONS):
        factor = (low * high) ** 0.5
        spec = _large(spec_of(row, _scaled(chosen, factor)), chosen)
        short = msgspec.structs.replace(spec, horizon=msgspec.structs.replace(spec.horizon, first_steps=12))
        low, high = (factor, high) if simulate(short, seed).queries_cut_share < PAST_LIMIT_SHARE else (low, factor)
    return (low * high) ** 0.5

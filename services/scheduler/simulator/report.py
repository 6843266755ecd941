"""Tables for people."""

import statistics
from typing import Any

import msgspec

from services.scheduler.simulator.measures import Result
from services.scheduler.simulator.spec import Spec

LINES = (
    ("first_steps_h", "h", "to the first steps' last update"),
    ("step_h", "h", "a step, steady"),
    ("bound_step_h", "h", "lower bound of a step"),
    ("staleness_mean", "steps", "staleness of dispatch, mean"),
    ("staleness_max", "steps", "… maximum"),
    ("token_staleness_mean", "steps", "staleness of tokens, mean"),
    ("execution_h", "h", "an execution"),
    ("query_h", "h", "the slowest of a group"),
    ("wait_h", "h", "waiting for a slot"),
    ("timed_out_share", "", "executions cut by the wall limit"),
    ("idle_share", "", "node-seconds neither decoding nor training"),
    ("unused_share", "", "node-seconds unused, decoding as of full nodes"),
    ("slack_share", "", "time in which nothing is trained"),
    ("exposed_share", "", "time in which no execution runs"),
    ("role_changes", "", "role changes in the run"),
    ("evictions", "", "executions moved in the run"),
)
"""(measure, unit, meaning)"""
WIDTHS = (6, 8, 7, 7, 6, 6, 6, 4, 6, 6)
"""Of the ablation's columns after the first."""


def mean_of(results: list[Result]) -> dict[str, Any]:
    """Mean over seeds of every measure; the maximum of maxima; tenths one by one."""
    means: dict[str, Any] = {}
    for name in (field.name for field in msgspec.structs.fields(Result)):
        values = [getattr(result, name) for result in results]
        if name == "staleness_max":
            means[name] = max(values)
        elif isinstance(values[0], list):
            means[name] = [round(statistics.fmean(tenth), 4) for tenth in zip(*values, strict=False)]
        else:
            means[name] = round(statistics.fmean(values), 6)
    return means


def of_runs(spec: Spec, results: list[Result]) -> str:
    means = mean_of(results)
    lines = [
        f"{spec.name or 'simulation'}: {spec.scheduler.mode}, cells of {_sizes(spec)} nodes, mean of {len(results)} seeds"
    ]
    for name, unit, meaning in LINES:
        values = [getattr(result, name) for result in results]
        spread = f" ± {statistics.stdev(values):.3f}" if len(values) > 1 and name != "staleness_max" else ""
        lines.append(f"  {meaning:<48} {means[name]:>9.3f}{spread} {unit}".rstrip())
    lines.append(
        "  staleness by duration, shortest tenth first      "
        + " ".join(f"{value:.2f}" for value in means["staleness_deciles"])
    )
    return "\n".join(lines)


def _sizes(spec: Spec) -> str:
    sizes = spec.cell_nodes
    return f"{len(sizes)} × {sizes[0]}" if len(set(sizes)) == 1 else " + ".join(map(str, sizes))


def of_ablation(objects: list[dict[str, Any]]) -> str:
    names = ("row", "paper", "ours 12", "error", "steady", "±", "tuned", "stale", "max", "idle", "cut")
    lines = [
        " ".join(
            [f"{names[0]:<9}", *(f"{name:>{width}}" for name, width in zip(names[1:], WIDTHS, strict=True)), " what"]
        )
    ]
    squares = []
    for row in objects:
        error = _error(row)
        if error is not None and row["row"] != "E0":
            squares.append(error**2)
        lines.append(
            f"{row['row']:<9} {_number(row['paper'], 6)} {_number(row['ours_12'], 8)} {_percent(error)} {_number(row['ours_steady'], 7)} "
            f"{_number(row['ours_steady_spread'], 6)} {_number(row['best_tuned'], 6)} {_number(row['staleness_mean'], 6)} "
            f"{row['staleness_max'] if row['staleness_max'] is not None else '':>4} {_number(row['idle_share'], 6)} "
            f"{_number(row.get('timed_out_share'), 6)}  {row['what']}"
        )
    if squares:
        lines.append(f"root mean square error over {len(squares)} rows: {100 * statistics.fmean(squares) ** 0.5:.1f} %")
    return "\n".join(lines)


def _error(row: dict[str, Any]) -> float | None:
    """Against the nearer of the two readings where the paper has two."""
    papers = [paper for paper in (row["paper"], row.get("paper_other")) if paper and row["ours_12"]]
    return min((row["ours_12"] / paper - 1.0 for paper in papers), key=abs, default=None)


def _number(value: float | None, width: int) -> str:
    return " " * width if value is None else f"{value:>{width}.3f}"


def _percent(error: float | None) -> str:
    return " " * 7 if error is None else f"{100 * error:>+6.1f}%"

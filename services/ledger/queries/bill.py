"""The bill: which customer's which kind of task, on which weights, cost how much, and how much of that through retries (C12).

`bill` answers:

    run, by     the dimensions
    columns     names of measures, in order
    prices      those that are set; {} is a bill without money
    rows        [{<dimension>…, <measure>…}], one for each combination there is
    total       {<measure>…}, the sums of the books

Measures: executions, attempts, turns, tokens_sampled, tokens_trained (target tokens in gradients), compute_s (training), occupancy_s,
external_calls, and retry_…: what of attempts, turns, tokens, occupancy and calls went into attempts that do not count for their execution.
One does: the attempt that was trained, else the newest. With prices: cost and retry_cost.

An attempt sampled by several versions is shared out by its tokens: tokens by the version of each, a turn by its call's tokens, everything else by the
attempt's, which makes fractions. `model_version` is null where no token was sampled.
"""

from typing import Any

import sqlalchemy as sa

from gyre.config import Config
from gyre.errors import InvalidInput
from services.ledger.core.bill_lines import COLUMNS, UNSETTLED, lines
from services.ledger.core.costs import UNKNOWN
from services.ledger.queries.sql import number, rows

DIMENSIONS: dict[str, str] = {
    "tenant": "g.tenant",
    "task_type": "g.task_type",
    "task": "g.task_id",
    "environment": "g.environment",
    "purpose": "g.purpose",
    "model_version": f"CASE WHEN c.version <> {UNKNOWN} THEN c.version END",
    "attempt": "c.attempt",
}
"""Name → expression over the query's `c` (lines) and `g` (groups)."""

DEFAULT = ("tenant", "task_type", "model_version")

_LINES = f"SELECT {', '.join(COLUMNS)} FROM bill_lines WHERE run = :run UNION ALL {lines(UNSETTLED)}"
"""Of groups that have settled, and of those that have not."""

_SUMS: dict[str, str] = {
    "attempts": "c.share",
    "turns": "c.turns",
    "tokens_sampled": "c.tokens",
    "tokens_trained": "c.targets",
    "compute_s": "c.compute_s",
    "occupancy_s": "c.occupancy_s",
    "external_calls": "c.external_calls",
}
"""Measure → what is summed, once over attempts that count and once over extra ones."""

_RETRIES = ("attempts", "turns", "tokens_sampled", "occupancy_s", "external_calls")
"""A retry has no training of its own: the attempt that was trained is the one that counts."""

MEASURES = ("executions", *_SUMS, *(f"retry_{name}" for name in _RETRIES))

_PRICED = {
    "per_occupancy_hour": ("occupancy_s", 1 / 3600),
    "per_million_tokens": ("tokens_sampled", 1e-6),
    "per_external_call": ("external_calls", 1.0),
    "per_gpu_hour": ("compute_s", 1 / 3600),
}
"""Price → what it is for, and how much of that is one unit."""


def query(by: tuple[str, ...]) -> str:
    """SQL of a bill by these dimensions and `retry`. Raises InvalidInput for one that there is not."""
    strange = [name for name in by if name not in DIMENSIONS]
    if strange or len(set(by)) != len(by):
        raise InvalidInput(f"no bill by {','.join(strange or by)}: name each once of {', '.join(DIMENSIONS)}")
    names = [f"{DIMENSIONS[name]} AS {name}" for name in by]
    sums = [f"sum({expression}) AS {name}" for name, expression in _SUMS.items()]
    return f"""
SELECT {", ".join([*names, "c.retry", *sums])}
FROM ({_LINES}) c
LEFT JOIN groups g ON g.run = :run AND g.group_id = c.group_id
GROUP BY {", ".join([*(DIMENSIONS[name] for name in by), "c.retry"])}
"""


def bill(connection: sa.Connection, run: str, config: Config, by: tuple[str, ...] = ()) -> dict[str, Any]:
    """The answer whose shape the module's docstring gives; by DEFAULT where no dimension is named. Raises InvalidInput."""
    by = by or DEFAULT
    lines: dict[tuple, dict[str, Any]] = {}
    for row in rows(connection, query(by), run=run):
        key = tuple(row[name] for name in by)
        _add(lines.setdefault(key, dict(zip(by, key, strict=True)) | dict.fromkeys(MEASURES, 0)), row)
    prices = {name: price for name in _PRICED if (price := getattr(config.ledger.prices, name))}
    found = [
        _priced(lines[key], prices)
        for key in sorted(lines, key=lambda key: [(value is not None, value) for value in key])
    ]
    columns = [*MEASURES, *(["cost", "retry_cost"] if prices else [])]
    total = {name: _tidy(sum(row[name] for row in found)) for name in columns}
    return {"run": run, "by": list(by), "columns": columns, "prices": prices, "rows": found, "total": total}


def _add(line: dict[str, Any], row: dict[str, Any]) -> None:
    for name in _SUMS:
        line[name] += number(row[name])
    if row["retry"]:
        line |= {f"retry_{name}": number(row[name]) for name in _RETRIES}
    else:
        line["executions"] = number(row["attempts"])


def _priced(line: dict[str, Any], prices: dict[str, float]) -> dict[str, Any]:
    line |= {name: _tidy(line[name]) for name in MEASURES}
    for cost, prefix in (("cost", ""), ("retry_cost", "retry_")) if prices else ():
        charged = [(price, *_PRICED[name]) for name, price in prices.items()]
        line[cost] = sum(price * line.get(prefix + measure, 0) * unit for price, measure, unit in charged)
    return line


def _tidy(value: float) -> float | int:
    """Whole numbers as such: fractions are only there where an attempt was shared out."""
    return round(value) if abs(value - round(value)) < 1e-9 * max(1.0, abs(value)) else value

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

from gyre.config import Config, PriceConfig
from gyre.errors import InvalidInput
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
"""Name → expression over the query's `c` (attempts) and `g` (groups)."""

DEFAULT = ("tenant", "task_type", "model_version")

_ATTEMPTS = """
SELECT *, CASE WHEN attempt = COALESCE(max(CASE WHEN trained > 0 THEN attempt END) OVER one, max(attempt) OVER one)
          THEN 0.0 ELSE 1.0 END AS retry
FROM costs WHERE run = :run WINDOW one AS (PARTITION BY run, execution_id)
"""
"""`costs`, and whether the attempt counts for its execution (0) or is extra (1)."""

_VERSIONS = f"""
SELECT a.attempt, a.group_id, COALESCE(u.version, {UNKNOWN}) AS version, u.turns, u.tokens, a.targets, a.compute_s, a.occupancy_s,
       a.external_calls, a.retry, CASE WHEN a.tokens > 0 THEN 1.0 * u.tokens / a.tokens ELSE 1.0 END AS share
FROM ({_ATTEMPTS}) a
LEFT JOIN usage u ON u.run = a.run AND u.execution_id = a.execution_id AND u.attempt = a.attempt
"""
"""An attempt's row for each version that sampled it, with the version's share of its tokens."""

_MEASURES: dict[str, str] = {
    "executions": "c.share * (1 - c.retry)",
    "attempts": "c.share",
    "turns": "c.turns",
    "tokens_sampled": "c.tokens",
    "tokens_trained": "c.targets * c.share",
    "compute_s": "c.compute_s * c.share",
    "occupancy_s": "c.occupancy_s * c.share",
    "external_calls": "c.external_calls * c.share",
    "retry_attempts": "c.share * c.retry",
    "retry_turns": "c.turns * c.retry",
    "retry_tokens_sampled": "c.tokens * c.retry",
    "retry_occupancy_s": "c.occupancy_s * c.share * c.retry",
    "retry_external_calls": "c.external_calls * c.share * c.retry",
}
"""Each is summed. A retry has no training of its own: the attempt that was trained is the one that counts."""

_PRICED = {
    "per_occupancy_hour": ("occupancy_s", 1 / 3600),
    "per_million_tokens": ("tokens_sampled", 1e-6),
    "per_external_call": ("external_calls", 1.0),
    "per_gpu_hour": ("compute_s", 1 / 3600),
}
"""Price → what it is for, and how much of that is one unit."""


def query(by: tuple[str, ...]) -> str:
    """SQL of a bill by these dimensions. Raises InvalidInput for one that there is not."""
    strange = [name for name in by if name not in DIMENSIONS]
    if strange or len(set(by)) != len(by):
        raise InvalidInput(f"no bill by {','.join(strange or by)}: name each once of {', '.join(DIMENSIONS)}")
    lines = _VERSIONS if "model_version" in by else f"SELECT a.*, 1.0 AS share FROM ({_ATTEMPTS}) a"
    names = [f"{DIMENSIONS[name]} AS {name}" for name in by]
    sums = [f"sum({expression}) AS {name}" for name, expression in _MEASURES.items()]
    grouping = f"GROUP BY {', '.join(DIMENSIONS[name] for name in by)}" if by else ""
    return f"""
SELECT {", ".join([*names, *sums])}
FROM ({lines}) c
LEFT JOIN groups g ON g.run = :run AND g.group_id = c.group_id
{grouping}
"""


def bill(connection: sa.Connection, run: str, config: Config, by: tuple[str, ...] = ()) -> dict[str, Any]:
    """The answer whose shape the module's docstring gives; by DEFAULT where no dimension is named. Raises InvalidInput."""
    by = by or DEFAULT
    prices = {name: price for name in _PRICED if (price := getattr(config.ledger.prices, name))}
    found = [_line(row, by, config.ledger.prices, bool(prices)) for row in rows(connection, query(by), run=run)]
    found.sort(key=lambda row: [(row[name] is not None, row[name]) for name in by])
    columns = [*_MEASURES, *(["cost", "retry_cost"] if prices else [])]
    total = {name: _tidy(sum(row[name] for row in found)) for name in columns}
    return {"run": run, "by": list(by), "columns": columns, "prices": prices, "rows": found, "total": total}


def _line(row: dict[str, Any], by: tuple[str, ...], prices: PriceConfig, has_prices: bool) -> dict[str, Any]:
    line = {name: row[name] for name in by} | {name: _tidy(number(row[name])) for name in _MEASURES}
    if has_prices:
        for cost, prefix in (("cost", ""), ("retry_cost", "retry_")):
            line[cost] = sum(
                getattr(prices, price) * unit * line.get(prefix + name, 0) for price, (name, unit) in _PRICED.items()
            )
    return line


def _tidy(value: float) -> float | int:
    """Whole numbers as such: fractions are only there where an attempt was shared out."""
    return round(value) if abs(value - round(value)) < 1e-9 * max(1.0, abs(value)) else value

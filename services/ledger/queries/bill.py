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

import numpy as np
import numpy.typing as npt
import sqlalchemy as sa

from gyre.config import Config
from gyre.errors import InvalidInput
from services.ledger.core.bill_lines import COLUMNS, UNSETTLED, lines
from services.ledger.core.costs import UNKNOWN

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
"""Measure → what is summed, once over all attempts and once over extra ones."""

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
    """SQL of a bill by these dimensions: them, then MEASURES. Raises InvalidInput for one that there is not."""
    strange = [name for name in by if name not in DIMENSIONS]
    if strange or len(set(by)) != len(by):
        raise InvalidInput(f"no bill by {','.join(strange or by)}: name each once of {', '.join(DIMENSIONS)}")
    sums = [
        "sum(c.share * (1 - c.retry)) AS executions",
        *(f"sum({expression}) AS {name}" for name, expression in _SUMS.items()),
    ]
    sums += [f"sum({_SUMS[name]} * c.retry) AS retry_{name}" for name in _RETRIES]
    return f"""
SELECT {", ".join([*(f"{DIMENSIONS[name]} AS {name}" for name in by), *sums])}
FROM ({_LINES}) c
LEFT JOIN groups g ON g.run = :run AND g.group_id = c.group_id
GROUP BY {", ".join(DIMENSIONS[name] for name in by)}
"""


def bill(connection: sa.Connection, run: str, config: Config, by: tuple[str, ...] = ()) -> dict[str, Any]:
    """The answer whose shape the module's docstring gives; by DEFAULT where no dimension is named. Raises InvalidInput."""
    by = by or DEFAULT
    prices = {name: price for name in _PRICED if (price := getattr(config.ledger.prices, name))}
    lines = [tuple(row) for row in connection.execute(sa.text(query(by)), {"run": run})]
    lines.sort(key=lambda line: [(value is not None, value) for value in line[: len(by)]])
    # Column by column: where one dimension is the version there may be a hundred thousand lines.
    columns = list(zip(*lines, strict=True)) or [()] * (len(by) + len(MEASURES))
    measured = dict(zip(MEASURES, (np.array(column, np.float64) for column in columns[len(by) :]), strict=True))
    measured |= _charged(measured, prices)
    names = (*by, *measured)
    values = [*columns[: len(by)], *map(_tidied, measured.values())]
    found = [dict(zip(names, line, strict=True)) for line in zip(*values, strict=True)]
    total = {name: _tidied(column.sum(keepdims=True))[0] for name, column in measured.items()}
    return {"run": run, "by": list(by), "columns": list(measured), "prices": prices, "rows": found, "total": total}


def _charged(measured: dict[str, npt.NDArray], prices: dict[str, float]) -> dict[str, npt.NDArray]:
    """`cost` and `retry_cost` of each line; nothing where no price is set."""
    if not prices:
        return {}
    charged = [(price, *_PRICED[name]) for name, price in prices.items()]
    nothing = np.zeros_like(measured["turns"])
    return {
        cost: sum((price * unit * measured.get(prefix + measure, nothing) for price, measure, unit in charged), nothing)
        for cost, prefix in (("cost", ""), ("retry_cost", "retry_"))
    }


def _tidied(values_N: npt.NDArray) -> list[float | int]:
    """Whole numbers as such: fractions are only there where an attempt was shared out."""
    whole_N = np.rint(values_N)
    is_whole_N = np.abs(values_N - whole_N) < 1e-9 * np.maximum(1.0, np.abs(values_N))
    if is_whole_N.all():
        return whole_N.astype(np.int64).tolist()
    tidied_N = values_N.astype(object)
    tidied_N[is_whole_N] = whole_N[is_whole_N].astype(np.int64)
    return tidied_N.tolist()

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

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import sqlalchemy as sa

from gyre.config import Config
from gyre.errors import InvalidInput
from services.ledger.core.bill_lines import COLUMNS, UNSETTLED, lines
from services.ledger.core.costs import UNKNOWN

_OF_GROUP = {
    "tenant": "tenant", "task_type": "task_type", "task": "task_id", "environment": "environment", "purpose": "purpose",
}  # fmt: skip
"""Dimension → column of `groups`."""
_OF_LINE = {"model_version": "version", "attempt": "attempt"}
"""Dimension → column of a line."""

DIMENSIONS = (*_OF_GROUP, *_OF_LINE)

DEFAULT = ("tenant", "task_type", "model_version")

_LINES = f"SELECT {', '.join(COLUMNS)} FROM bill_lines WHERE run = :run UNION ALL {lines(UNSETTLED)}"
"""Of groups that have settled, and of those that have not."""

_SUMS = {
    "attempts": "share", "turns": "turns", "tokens_sampled": "tokens", "tokens_trained": "targets", "compute_s": "compute_s",
    "occupancy_s": "occupancy_s", "external_calls": "external_calls",
}  # fmt: skip
"""Measure → column of a line that is summed, once over all attempts and once over extra ones."""

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


WHOLE_MAX = 2.0**53
"""From here on a price times an amount is told as a real number: not every whole one is there, and 64 bits end soon."""


def bill(connection: sa.Connection, run: str, config: Config, by: tuple[str, ...] = ()) -> dict[str, Any]:
    """The answer whose shape the module's docstring gives; by DEFAULT where no dimension is named. Raises InvalidInput."""
    by = by or DEFAULT
    strange = [name for name in by if name not in DIMENSIONS]
    if strange or len(set(by)) != len(by):
        raise InvalidInput(f"no bill by {','.join(strange or by)}: name each once of {', '.join(DIMENSIONS)}")
    prices = {name: price for name in _PRICED if (price := getattr(config.ledger.prices, name))}
    # Column by column, and the driver's own rows: there are hundreds of thousands, and where one dimension is the version nearly as many in the bill.
    found = connection.execute(sa.text(_LINES), {"run": run}).cursor.fetchall()
    table = dict(zip(COLUMNS, list(zip(*found, strict=True)) or [()] * len(COLUMNS), strict=True))
    keys, place_N = _keyed([_values(connection, run, name, table) for name in by])
    measured = _measured(table, place_N, len(keys))
    measured |= _charged(measured, prices)
    names = (*by, *measured)
    cells = (list(zip(*keys, strict=True)) or [()] * len(by)) + list(map(_tidied, measured.values()))
    rows = [dict(zip(names, line, strict=True)) for line in zip(*cells, strict=True)]
    total = {name: _tidied(column.sum(keepdims=True))[0] for name, column in measured.items()}
    return {"run": run, "by": list(by), "columns": list(measured), "prices": prices, "rows": rows, "total": total}


def _values(connection: sa.Connection, run: str, name: str, table: dict[str, Sequence]) -> Sequence[Any]:
    """A dimension's value of each line; None where there is none."""
    if name in _OF_LINE:
        values = table[_OF_LINE[name]]
        return [None if value == UNKNOWN else value for value in values] if name == "model_version" else values
    query = sa.text(f"SELECT group_id, {_OF_GROUP[name]} FROM groups WHERE run = :run")
    of_group = dict(connection.execute(query, {"run": run}).cursor.fetchall())
    return [of_group.get(group) for group in table["group_id"]]


def _keyed(dimensions: list[Sequence[Any]]) -> tuple[list[tuple[Any, ...]], npt.NDArray]:
    """(what there is of combinations, sorted, None first; int64[N] the place of each line's among them)."""
    known = [sorted(set(values), key=lambda value: (value is not None, value)) for values in dimensions]
    whole_N = np.zeros(len(dimensions[0]), np.int64)
    for values, own in zip(dimensions, known, strict=True):
        codes = {value: code for code, value in enumerate(own)}
        whole_N = whole_N * max(len(own), 1) + np.fromiter((codes[value] for value in values), np.int64, len(values))
    kept_K, place_N = np.unique(whole_N, return_inverse=True)
    parts = np.unravel_index(kept_K, [max(len(own), 1) for own in known])
    return list(
        zip(*([own[code] for code in part.tolist()] for own, part in zip(known, parts, strict=True)), strict=True)
    ), place_N


def _measured(table: dict[str, Sequence], place_N: npt.NDArray, count: int) -> dict[str, npt.NDArray]:
    """MEASURES of each of `count` combinations."""
    retry_N = np.array(table["retry"], np.float64)
    lines_of = {name: np.array(table[column], np.float64) for name, column in _SUMS.items()}

    def added(weights_N: npt.NDArray) -> npt.NDArray:
        return np.bincount(place_N, weights_N, count)

    return {
        "executions": added(lines_of["attempts"] * (1 - retry_N)),
        **{name: added(own) for name, own in lines_of.items()},
        **{f"retry_{name}": added(lines_of[name] * retry_N) for name in _RETRIES},
    }


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
    is_whole_N = (np.abs(values_N - whole_N) < 1e-9 * np.maximum(1.0, np.abs(values_N))) & (
        np.abs(values_N) < WHOLE_MAX
    )
    if is_whole_N.all():
        return whole_N.astype(np.int64).tolist()
    tidied_N = values_N.astype(object)
    tidied_N[is_whole_N] = whole_N[is_whole_N].astype(np.int64)
    return tidied_N.tolist()

"""Rows about many samples as columns: a page is about ten thousand executions and their calls, which Python counts one by one too slowly."""

from collections.abc import Sequence

import numpy as np
import sqlalchemy as sa

from services.ledger.core.parts import in_parts


def rows_of(connection: sa.Connection, query: str, run: str, ids: Sequence[str]) -> list[tuple]:
    """Plain rows of `query`, which binds `:run` and `:ids`; whole numbers, real numbers and text only."""
    statement = sa.text(query).bindparams(sa.bindparam("ids", expanding=True))
    found: list[tuple] = []
    for some in in_parts(ids):
        # the driver's own rows: there are hundreds of thousands
        found += connection.execute(statement, {"run": run, "ids": some}).cursor.fetchall()
    return found


def columns_of(
    connection: sa.Connection, query: str, run: str, ids: Sequence[str], width: int
) -> tuple[np.ndarray, list[tuple]]:
    """(int64[N] place in `ids` of each row's first column, the `width` other columns)."""
    found = list(zip(*rows_of(connection, query, run, ids), strict=True)) or [()] * (width + 1)
    places = {name: place for place, name in enumerate(ids)}
    return np.fromiter((places[name] for name in found[0]), np.int64, len(found[0])), found[1:]


def real(column: Sequence[float | None]) -> np.ndarray:
    """float64[N], NaN where there is nothing."""
    return np.array(column, np.float64)


def first_of(*columns: np.ndarray) -> np.ndarray:
    """float64[N], of each row the first value that is there; 0 is none, as times and counts in records have it."""
    found = columns[-1]
    for column in columns[-2::-1]:
        found = np.where(np.isnan(column) | (column == 0), found, column)
    return found

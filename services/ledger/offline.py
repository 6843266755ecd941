"""Exported Parquet files → books of their own: an offline data set, which every question and the explorer take as a run that is over (D12).

    <name>.parquet ──▶ rows of the tables they came from ──▶ what follows from them: executions, usage, totals, lines of bills and books

Values are those of the files to the bit: exported again they are the same tables. What only other facts tell (steps, cells, waits in queues) is not
in the files, hence not here; neither are tokens, which demonstrations.jsonl has. Needs pyarrow.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from gyre.errors import Conflict, InvalidInput, NotFound
from gyre.numbers import is_count
from services.ledger.core.costs import UNKNOWN
from services.ledger.core.tables import METADATA
from services.ledger.parquet import DATA_SETS, ROWS_AT_ONCE, DataSet
from services.ledger.storage import Database
from services.ledger.storage.settling import settle_all

_COSTS = {"turns": "calls", "external_calls": "external_calls", "occupancy_s": "occupancy_s", "group_id": "group_id"}
"""Columns of `costs` that the file has under an attempt's names."""


def import_files(database: Database, run: str, folder: Path) -> dict[str, dict[str, Any]]:
    """Take in what `gyre export` wrote into `folder`: {name: {path, rows}}. All or nothing.

    Raises NotFound where there is no file, InvalidInput for files that are none of ours or of another run, Conflict for books that hold something.
    """
    paths = {name: path for name in DATA_SETS if (path := folder / f"{name}.parquet").exists()}
    if not paths:
        raise NotFound(
            f"{folder} has none of {', '.join(f'{name}.parquet' for name in DATA_SETS)}; `gyre export DIR` writes them"
        )
    told = {}
    with database.writing.begin() as connection:
        if connection.scalar(sa.text("SELECT count(*) FROM attempts")) or connection.scalar(
            sa.text("SELECT count(*) FROM facts")
        ):
            raise Conflict(f"the books of run {run} hold something already: import into a folder of its own")
        insert = sqlite.insert if database.is_sqlite else postgresql.insert
        for name, path in paths.items():
            count = 0
            for rows in _rows(DATA_SETS[name], path, run):
                for table, found in _apart(DATA_SETS[name], rows).items():
                    _insert(connection, insert, METADATA.tables[table], found)
                if name == "executions":
                    _insert(connection, insert, METADATA.tables["executions"], _members(rows))
                if name == "turns":
                    _use(connection, insert, rows)
                count += len(rows)
            told[name] = {"path": str(path), "rows": count}
        for statement in _FOLLOWS:
            connection.execute(statement)
    settle_all(database.writing, keep=0)
    return told


def _opened(path: Path) -> pq.ParquetFile:
    try:
        file = pq.ParquetFile(path)
    except (pa.ArrowInvalid, OSError) as error:
        raise InvalidInput(f"{path} is no Parquet file: {error}") from error
    if b"gyre.run" not in (file.schema_arrow.metadata or {}):
        raise InvalidInput(f"{path} was not written by `gyre export`: it does not say whose run it is")
    return file


def _rows(data: DataSet, path: Path, run: str) -> Iterator[list[dict[str, Any]]]:
    file, schema = _opened(path), data.schema(run)
    own = file.schema_arrow.metadata[b"gyre.run"].decode()
    if own != run:
        raise InvalidInput(f"{path} is of run {own}, the others are of {run}")
    if missing := [name for name in schema.names if name not in file.schema_arrow.names]:
        raise InvalidInput(f"{path} has no column {', '.join(missing)}")
    for batch in file.iter_batches(ROWS_AT_ONCE, columns=schema.names):
        try:
            rows = batch.select(schema.names).cast(schema).to_pylist()
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise InvalidInput(f"{path}: {error}") from error
        keys = [column.name for column in data.table.primary_key]
        if strange := next((row for row in rows if row["run"] != run or any(row[key] is None for key in keys)), None):
            raise InvalidInput(
                f"{path} has a row without its key, or of another run: { ({key: strange[key] for key in keys}) }"
            )
        yield rows


def _apart(data: DataSet, rows: Sequence[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Table → rows: each of the file's is one of its own table, and one of every joined table that said something of it."""
    names = [column.name for column in data.table.c if column.name in rows[0]] if rows else []
    found = {data.table.name: [{name: row[name] for name in names} for row in rows]}
    for one in data.joined:
        keys = ["run", *one.keys]
        extra = _COSTS if one.table.name == "costs" else {}
        # one row a key: a group's stands beside each of its members; an attempt is billed also where nothing was spent yet
        said = {
            tuple(row[key] for key in keys): {key: row[key] for key in keys}
            | {name: row[name] for name in one.columns} | {name: row[source] for name, source in extra.items()}
            for row in rows if extra or any(row[name] is not None for name in one.columns)
        }  # fmt: skip
        found[one.table.name] = list(said.values())
    return found


def _members(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """An execution for each that has an attempt."""
    return [
        {"run": row["run"], "execution_id": row["execution_id"], "group_id": row["group_id"], "purpose": row["purpose"],
         "member": int(tail) if is_count(tail := row["execution_id"].rpartition("-e")[2]) else -1}
        for row in rows
    ]  # fmt: skip


def _insert(connection: sa.Connection, insert: Any, table: sa.Table, rows: list[dict[str, Any]]) -> None:
    if rows:
        connection.execute(insert(table).on_conflict_do_nothing(), rows)


def _use(connection: sa.Connection, insert: Any, rows: Sequence[dict[str, Any]]) -> None:
    """Tokens by version: of a call that two versions sampled the mean says how many each did; of one that more did, nothing does."""
    sums: dict[tuple[str, int, int], list[float]] = {}
    for row in rows:
        tokens = row["output_tokens"] or 0
        for version, count in _versions(row["version_min"], row["version_mean"], row["version_max"], tokens).items():
            kept = sums.setdefault((row["execution_id"], row["attempt"], version), [0.0, 0])
            kept[0] += count / tokens if tokens else 1.0
            kept[1] += count
    table = METADATA.tables["usage"]
    statement = insert(table)
    added = {name: table.c[name] + statement.excluded[name] for name in ("turns", "tokens")}
    statement = statement.on_conflict_do_update(
        index_elements=[column.name for column in table.primary_key], set_=added
    )
    run = rows[0]["run"] if rows else ""
    found = [
        {
            "run": run,
            "execution_id": execution,
            "attempt": attempt,
            "version": version,
            "turns": turns,
            "tokens": tokens,
        }
        for (execution, attempt, version), (turns, tokens) in sums.items()
    ]
    if found:
        connection.execute(statement, found)


def _versions(low: int | None, mean: float | None, high: int | None, tokens: int) -> dict[int, int]:
    if low is None or high is None or mean is None or not tokens or not low <= mean <= high:
        return {UNKNOWN: tokens}
    if low == high:
        return {low: tokens}
    newer = tokens * (mean - low) / (high - low)
    if high - low > 1 and abs(newer - round(newer)) > 1e-6:
        return {UNKNOWN: tokens}
    return {low: tokens - round(newer), high: round(newer)}


_FOLLOWS = [
    sa.text("""
INSERT INTO book_totals (run, purpose, turns, tokens, external_calls, occupancy_s)
SELECT run, purpose, sum(turns), sum(tokens), sum(external_calls), sum(occupancy_s) FROM (
  SELECT run, purpose, 1 AS turns, output_tokens AS tokens, 0 AS external_calls, 0.0 AS occupancy_s FROM calls
  UNION ALL SELECT run, purpose, 0, 0, external_calls, occupancy_s FROM attempts WHERE ended_at_s IS NOT NULL) t
WHERE purpose IS NOT NULL GROUP BY run, purpose"""),
    sa.text(
        "INSERT INTO unsettled (run, group_id, sequence) SELECT DISTINCT run, group_id, 0 FROM executions WHERE group_id IS NOT NULL"
    ),
]
"""Running totals, and what is still to be settled."""

"""Books → Parquet files, one for each of DATA_SETS; services.ledger.offline takes them back in. Needs pyarrow (`pip install gyre-rl[export]`), so
what imports this does so when it is asked to.

Columns are those of the ledger's tables, with their comments as field metadata `comment`; *_json columns hold JSON text, times are Unix seconds.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import sqlalchemy as sa

from services.ledger.core.tables import costs, executions, samples, steps

ROWS_AT_ONCE = 20_000
"""Read and written together: one row group, and all of the export that is ever in memory."""

_TYPES = {sa.Text: pa.string(), sa.BigInteger: pa.int64(), sa.Double: pa.float64(), sa.Boolean: pa.bool_()}


@dataclass(frozen=True)
class Joined:
    """What another table says of a row: `columns`, found by run and `keys`, which both tables have."""

    table: sa.Table
    keys: tuple[str, ...]
    columns: tuple[str, ...]


@dataclass(frozen=True)
class DataSet:
    """The rows of `table` with what is `joined`; of columns with the same name the joined ones are taken. `at_s` says when."""

    table: sa.Table
    joined: tuple[Joined, ...]
    at_s: Any

    @property
    def columns(self) -> list[sa.Column]:
        """Of the file, in order."""
        taken = {name for one in self.joined for name in one.columns}
        own = [column for column in self.table.c if column.name not in taken]
        return own + [one.table.c[name] for one in self.joined for name in one.columns]

    def query(self) -> sa.Select:
        source: Any = self.table
        for one in self.joined:
            same = (self.table.c[name] == one.table.c[name] for name in ("run", *one.keys))
            source = source.outerjoin(one.table, sa.and_(*same))
        return sa.select(*self.columns).select_from(source).order_by(*self.table.primary_key)

    def schema(self, run: str) -> pa.Schema:
        return pa.schema([_field(column) for column in self.columns], metadata={"gyre.run": run})


_GROUP = Joined(executions.GROUPS, ("group_id",), ("task_id", "task_type", "tenant", "environment", "purpose", "tier"))
_COST = Joined(costs.COSTS, ("execution_id", "attempt"), ("trained", "tokens", "targets", "compute_s"))
_STEP = Joined(steps.STEP_SAMPLES, ("sample_id",), ("step", "targets", "compute_s", "metrics_json"))
_ATTEMPTS = executions.ATTEMPTS

DATA_SETS: dict[str, DataSet] = {
    "executions": DataSet(
        _ATTEMPTS, (_GROUP, _COST), sa.func.coalesce(_ATTEMPTS.c.ended_at_s, _ATTEMPTS.c.started_at_s, _ATTEMPTS.c.leased_at_s)
    ),
    "samples": DataSet(samples.SAMPLES, (_GROUP, _STEP), samples.SAMPLES.c.at_s),
    "turns": DataSet(executions.CALLS, (_GROUP,), executions.CALLS.c.at_s),
    "drops": DataSet(samples.DROPS, (_GROUP,), samples.DROPS.c.at_s),
}  # fmt: skip
"""An attempt each with its task and cost, SampleReady with the step that trained it, model calls (without tokens, which are not in the ledger),
SampleDropped."""


def export(
    connection: sa.Connection, run: str, folder: Path, what: tuple[str, ...], since_s: float | None = None
) -> dict[str, dict[str, Any]]:
    """Write `folder`/<name>.parquet for each name; a file appears when it is whole. Answers {name: {path, rows, bytes}}."""
    folder.mkdir(parents=True, exist_ok=True)
    written = {}
    for name in what:
        data = DATA_SETS[name]
        query = data.query().where(data.table.c.run == run)
        if since_s is not None:
            query = query.where(data.at_s >= since_s)
        path = folder / f"{name}.parquet"
        rows = _write(connection, query, folder / f".{name}.parquet.part", data.schema(run))
        (folder / f".{name}.parquet.part").replace(path)
        written[name] = {"path": str(path), "rows": rows, "bytes": path.stat().st_size}
    return written


def _write(connection: sa.Connection, query: sa.Select, path: Path, schema: pa.Schema) -> int:
    count = 0
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        streamed = connection.execution_options(stream_results=True, yield_per=ROWS_AT_ONCE).execute(query)
        for rows in streamed.partitions():
            columns = [
                pa.array(values, type=field.type) for values, field in zip(zip(*rows, strict=True), schema, strict=True)
            ]
            writer.write_table(pa.table(columns, schema=schema))
            count += len(rows)
    return count


def _field(column: Any) -> pa.Field:
    metadata = {"comment": column.comment} if column.comment else None
    return pa.field(column.name, _TYPES[type(column.type)], metadata=metadata)

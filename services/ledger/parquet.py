"""Books → Parquet files, one for each of DATA_SETS. Needs pyarrow (`pip install gyre-rl[export]`); nothing else imports this module at its top.

Columns are those of the ledger's tables, with their comments as field metadata `comment`; *_json columns hold JSON text, times are Unix seconds.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import sqlalchemy as sa

from services.ledger.core.tables import costs, executions, samples, steps

ROWS_AT_ONCE = 20_000
"""Read and written together: one row group, and all of the export that is ever in memory."""

_TYPES = {sa.Text: pa.string(), sa.BigInteger: pa.int64(), sa.Double: pa.float64(), sa.Boolean: pa.bool_()}

_GROUP = [executions.GROUPS.c[name] for name in ("task_id", "task_type", "tenant", "environment", "purpose", "tier")]


def _joined(table: sa.Table, others: list[tuple[sa.Table, list[sa.Column]]], keys: list[tuple[str, ...]]) -> sa.Select:
    """`table` with columns of `others`, each joined by run and its keys; of columns with the same name theirs are taken."""
    source: Any = table
    columns = list(table.c)
    for (other, wanted), names in zip(others, keys, strict=True):
        source = source.outerjoin(other, sa.and_(*(table.c[name] == other.c[name] for name in ("run", *names))))
        columns = [column for column in columns if column.name not in {new.name for new in wanted}] + wanted
    return sa.select(*columns).select_from(source).order_by(*table.primary_key)


def _executions() -> tuple[sa.Select, Any]:
    attempts, cost = executions.ATTEMPTS, costs.COSTS
    spent = [cost.c[name] for name in ("trained", "tokens", "targets", "compute_s")]
    keys = [("group_id",), ("execution_id", "attempt")]
    at_s = sa.func.coalesce(attempts.c.ended_at_s, attempts.c.started_at_s, attempts.c.leased_at_s)
    return _joined(attempts, [(executions.GROUPS, _GROUP), (cost, spent)], keys), at_s


def _samples() -> tuple[sa.Select, Any]:
    trained = [steps.STEP_SAMPLES.c[name] for name in ("step", "targets", "compute_s", "metrics_json")]
    others = [(executions.GROUPS, _GROUP), (steps.STEP_SAMPLES, trained)]
    return _joined(samples.SAMPLES, others, [("group_id",), ("sample_id",)]), samples.SAMPLES.c.at_s


def _turns() -> tuple[sa.Select, Any]:
    return _joined(executions.CALLS, [(executions.GROUPS, _GROUP)], [("group_id",)]), executions.CALLS.c.at_s


def _drops() -> tuple[sa.Select, Any]:
    return _joined(samples.DROPS, [(executions.GROUPS, _GROUP)], [("group_id",)]), samples.DROPS.c.at_s


DATA_SETS: dict[str, Callable[[], tuple[sa.Select, Any]]] = {
    "executions": _executions,
    "samples": _samples,
    "turns": _turns,
    "drops": _drops,
}
"""Name → what is selected, and the column that says when: an attempt each with its task and cost, SampleReady with the step that trained it,
model calls (without tokens, which are not in the ledger), SampleDropped."""


def export(
    connection: sa.Connection, run: str, folder: Path, what: tuple[str, ...], since_s: float | None = None
) -> dict[str, dict[str, Any]]:
    """Write `folder`/<name>.parquet for each name; a file appears when it is whole. Answers {name: {path, rows, bytes}}."""
    folder.mkdir(parents=True, exist_ok=True)
    written = {}
    for name in what:
        query, at_s = DATA_SETS[name]()
        query = query.where(next(iter(query.selected_columns)) == run)
        if since_s is not None:
            query = query.where(at_s >= since_s)
        path = folder / f"{name}.parquet"
        rows = _write(connection, query, folder / f".{name}.parquet.part", run)
        (folder / f".{name}.parquet.part").replace(path)
        written[name] = {"path": str(path), "rows": rows, "bytes": path.stat().st_size}
    return written


def _write(connection: sa.Connection, query: sa.Select, path: Path, run: str) -> int:
    schema = pa.schema([_field(column) for column in query.selected_columns], metadata={"gyre.run": run})
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

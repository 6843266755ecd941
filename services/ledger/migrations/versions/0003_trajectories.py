"""The trajectory processor's facts: call records set aside, scores, credit, origins, batches that wait, the elite store; running totals for bills.

Frozen: later changes are migrations of their own. What columns mean is said in services/ledger/core/tables.
"""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"

_KEY = {"primary_key": True, "nullable": False, "autoincrement": False}

_TEXT, _INT, _REAL, _BOOL = sa.Text, sa.BigInteger, sa.Double, sa.Boolean

_TABLES: dict[str, tuple[list[tuple[str, type]], list[tuple[str, type]]]] = {
    # table: (key, other columns)
    "set_aside": (
        [("run", _TEXT), ("call_id", _TEXT)],
        [("execution_id", _TEXT), ("group_id", _TEXT), ("attempt", _INT), ("reason", _TEXT), ("detail", _TEXT), ("tokens", _INT),
        ("at_s", _REAL)],
    ),
    "scores": (
        [("run", _TEXT), ("sample_id", _TEXT), ("evaluator", _TEXT)],
        [("execution_id", _TEXT), ("group_id", _TEXT), ("attempt", _INT), ("task_type", _TEXT), ("kind", _TEXT), ("value", _REAL),
        ("valid", _BOOL), ("partial", _BOOL), ("tries", _INT), ("took_s", _REAL), ("evidence_json", _TEXT), ("looked_at_json", _TEXT),
        ("detail", _TEXT), ("at_s", _REAL), ("trace_id", _TEXT)],
    ),
    "overdue": (
        [("run", _TEXT), ("step", _INT), ("ordinal", _INT)],
        [("policy", _TEXT), ("executions", _INT), ("execution_ids_json", _TEXT), ("turns", _INT), ("turns_target", _INT),
        ("waited_s", _REAL), ("at_s", _REAL)],
    ),
    "elite_replays": (
        [("run", _TEXT), ("step", _INT), ("sample_id", _TEXT)],
        [("position", _INT), ("targets", _INT), ("compute_s", _REAL)],
    ),
    "costs": (
        [("run", _TEXT), ("execution_id", _TEXT), ("attempt", _INT)],
        [("group_id", _TEXT), ("trained", _INT), ("turns", _INT), ("tokens", _INT), ("external_calls", _INT), ("occupancy_s", _REAL),
        ("targets", _INT), ("compute_s", _REAL)],
    ),
    "usage": (
        [("run", _TEXT), ("execution_id", _TEXT), ("attempt", _INT), ("version", _INT)],
        [("turns", _REAL), ("tokens", _INT)],
    ),
}  # fmt: skip

_IN_ORDER = ("costs", "usage")
"""Kept on SQLite in the order of their keys."""

_COLUMNS: dict[str, list[tuple[str, type]]] = {
    "attempts": [("milestone_turns_json", _TEXT), ("is_replay", _BOOL)],
    "calls": [("role_rule", _TEXT)],
    "samples": [
        ("repeated_share", _REAL), ("segments", _INT), ("kappa", _REAL), ("segment_starts_json", _TEXT),
        ("segment_advantages_json", _TEXT), ("origin", _TEXT), ("elite_key", _TEXT),
    ],
    "batches": [("origins_json", _TEXT)],
    "steps": [("targets", _INT), ("compute_s", _REAL)],
    "step_samples": [("targets", _INT), ("compute_s", _REAL)],
}  # fmt: skip


def upgrade() -> None:
    for table, (key, columns) in _TABLES.items():
        op.create_table(
            table,
            *(sa.Column(name, kind, **_KEY) for name, kind in key),
            *(sa.Column(name, kind) for name, kind in columns),
            sqlite_with_rowid=table not in _IN_ORDER,
        )
    for table, columns in _COLUMNS.items():
        for name, kind in columns:
            op.add_column(table, sa.Column(name, kind))

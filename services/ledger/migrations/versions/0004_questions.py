"""Lines of bills for groups that have settled; what people and models say of samples; which samples a version sampled; attempts by time.

Frozen: later changes are migrations of their own. What columns mean is said in services/ledger/core/tables.
"""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"

_KEY = {"primary_key": True, "nullable": False, "autoincrement": False}

_TEXT, _INT, _REAL, _BOOL = sa.Text, sa.BigInteger, sa.Double, sa.Boolean

_TABLES: dict[str, tuple[list[tuple[str, type]], list[tuple[str, type]]]] = {
    # table: (key, other columns)
    "bill_lines": (
        [("run", _TEXT), ("group_id", _TEXT), ("version", _INT), ("attempt", _INT), ("retry", _INT)],
        [("share", _REAL), ("turns", _REAL), ("tokens", _INT), ("targets", _REAL), ("compute_s", _REAL), ("occupancy_s", _REAL),
        ("external_calls", _REAL)],
    ),
    "unsettled": (
        [("run", _TEXT), ("group_id", _TEXT)],
        [("sequence", _INT)],
    ),
    "judgements": (
        [("run", _TEXT), ("judge", _TEXT), ("sample_id", _TEXT)],
        [("kind", _TEXT), ("score", _REAL), ("task_type", _TEXT), ("at_s", _REAL), ("source", _TEXT), ("imported_at_s", _REAL)],
    ),
}  # fmt: skip

_IN_ORDER = ("bill_lines", "unsettled")
"""Kept on SQLite in the order of their keys."""

_INDEXES = [
    ("costs_by_group_id", "costs", ["run", "group_id"]),
    ("usage_by_version", "usage", ["run", "version"]),
    ("attempts_by_leased_at_s", "attempts", ["run", "leased_at_s"]),
]


def upgrade() -> None:
    for table, (key, columns) in _TABLES.items():
        op.create_table(
            table,
            *(sa.Column(name, kind, **_KEY) for name, kind in key),
            *(sa.Column(name, kind) for name, kind in columns),
            sqlite_with_rowid=table not in _IN_ORDER,
        )
    for name, table, columns in _INDEXES:
        op.create_index(name, table, columns)
    op.execute("INSERT INTO unsettled (run, group_id, sequence) SELECT DISTINCT run, group_id, 0 FROM costs")

"""Running totals of the books, and lines of settled groups in them; weights of evaluators that follow agreement.

Frozen: later changes are migrations of their own. What columns mean is said in services/ledger/core/tables.
"""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"

_KEY = {"primary_key": True, "nullable": False, "autoincrement": False}

_TEXT, _INT, _REAL = sa.Text, sa.BigInteger, sa.Double

_TABLES: dict[str, tuple[list[tuple[str, type]], list[tuple[str, type]]]] = {
    # table: (key, other columns)
    "book_totals": (
        [("run", _TEXT), ("purpose", _TEXT)],
        [("turns", _INT), ("tokens", _INT), ("external_calls", _INT), ("occupancy_s", _REAL)],
    ),
    "fate_lines": (
        [("run", _TEXT), ("group_id", _TEXT), ("purpose", _TEXT), ("dispatched", _INT), ("trained", _INT), ("dropped", _TEXT), ("version", _INT)],
        [(name, _INT) for name in ("executions", "ended", "timed_out", "scored", "succeeded")],
    ),
    "step_lines": (
        [("run", _TEXT), ("group_id", _TEXT), ("step", _INT)],
        [(name, _INT) for name in ("executions", "age_sum", "age_max", "ended", "timed_out", "turns", "scored", "succeeded", "samples", "rewarded")]
        + [("reward_sum", _REAL)],
    ),
    "weighings": (
        [("run", _TEXT), ("evaluator", _TEXT), ("at_s", _REAL)],
        [("weight", _REAL), ("share", _REAL), ("agreement", _REAL), ("low", _REAL), ("pairs", _INT)],
    ),
}  # fmt: skip

_IN_ORDER = ("book_totals", "fate_lines", "step_lines")
"""Kept on SQLite in the order of their keys."""

_TOTALS = """
INSERT INTO book_totals (run, purpose, turns, tokens, external_calls, occupancy_s)
SELECT run, purpose, sum(turns), sum(tokens), sum(external_calls), sum(occupancy_s) FROM (
  SELECT run, purpose, 1 AS turns, output_tokens AS tokens, 0 AS external_calls, 0.0 AS occupancy_s FROM calls
  UNION ALL SELECT run, purpose, records, tokens, 0, 0.0 FROM compacted
  UNION ALL SELECT run, purpose, 0, 0, external_calls, occupancy_s FROM attempts WHERE ended_at_s IS NOT NULL) t
WHERE purpose IS NOT NULL GROUP BY run, purpose
"""
_UNSETTLED = """
INSERT INTO unsettled (run, group_id, sequence)
SELECT run, group_id, 0 FROM (SELECT run, group_id FROM costs UNION SELECT run, group_id FROM executions) g
WHERE NOT EXISTS (SELECT 1 FROM unsettled u WHERE u.run = g.run AND u.group_id = g.group_id)
"""


def upgrade() -> None:
    for table, (key, columns) in _TABLES.items():
        op.create_table(
            table,
            *(sa.Column(name, kind, **_KEY) for name, kind in key),
            *(sa.Column(name, kind) for name, kind in columns),
            sqlite_with_rowid=table not in _IN_ORDER,
        )
    op.create_index("batch_groups_by_group_id", "batch_groups", ["run", "group_id"])
    limited = sa.text("quota_left >= 0")
    op.create_index(
        "attempts_by_quota_left", "attempts", ["run", "quota_left"], sqlite_where=limited, postgresql_where=limited
    )
    op.execute(_TOTALS)
    # Whatever has settled did so without these lines; it settles again when the database is opened.
    op.execute("DELETE FROM bill_lines")
    op.execute(_UNSETTLED)

"""The elastic scheduler's facts: bursts, plans, cells' capacity, commands to executions.

Frozen: later changes are migrations of their own. What columns mean is said in services/ledger/core/tables.
"""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

_KEY = {"primary_key": True, "nullable": False, "autoincrement": False}

_TEXT, _INT, _REAL, _BOOL = sa.Text, sa.BigInteger, sa.Double, sa.Boolean

_TABLES: dict[str, tuple[list[tuple[str, type]], list[tuple[str, type]]]] = {
    # table: (key, other columns)
    "bursts": (
        [("run", _TEXT), ("burst", _INT)],
        [("first_step", _INT), ("steps", _INT), ("need_groups", _INT), ("carry_groups", _REAL), ("core_stays", _BOOL),
        ("at_s", _REAL), ("extra_depth_steps", _REAL), ("release_share", _REAL), ("is_two_way", _BOOL)],
    ),
    "plans": (
        [("run", _TEXT), ("plan", _INT)],
        [("steps_per_publish", _INT), ("extra_depth_steps", _REAL), ("release_share", _REAL), ("is_two_way", _BOOL),
        ("order", _TEXT), ("at_s", _REAL), ("predicted_gain", _REAL), ("reason", _TEXT)],
    ),
    "cell_reports": (
        [("run", _TEXT), ("cell", _TEXT), ("at_s", _REAL)],
        [("capacity", _INT), ("reason", _TEXT)],
    ),
    "commands": (
        [("run", _TEXT), ("execution_id", _TEXT), ("ordinal", _INT)],
        [("group_id", _TEXT), ("command", _TEXT), ("said_by", _TEXT), ("reason", _TEXT), ("commanded_at_s", _REAL),
        ("attempt", _INT), ("carried_out_at_s", _REAL)],
    ),
}  # fmt: skip


def upgrade() -> None:
    for table, (key, columns) in _TABLES.items():
        op.create_table(
            table,
            *(sa.Column(name, kind, **_KEY) for name, kind in key),
            *(sa.Column(name, kind) for name, kind in columns),
        )

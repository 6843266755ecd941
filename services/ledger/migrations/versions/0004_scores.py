"""What evaluators beside the environment said of samples, and how much samples repeat themselves.

Frozen: later changes are migrations of their own. What columns mean is said in services/ledger/core/tables.py.
"""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"

_KEY = {"primary_key": True, "nullable": False, "autoincrement": False}

_TEXT, _INT, _REAL, _BOOL = sa.Text, sa.BigInteger, sa.Double, sa.Boolean


def upgrade() -> None:
    op.create_table(
        "scores",
        *(sa.Column(name, _TEXT, **_KEY) for name in ("run", "sample_id", "evaluator")),
        *(sa.Column(name, _TEXT) for name in ("execution_id", "group_id")),
        sa.Column("attempt", _INT),
        *(sa.Column(name, _TEXT) for name in ("task_type", "kind")),
        sa.Column("value", _REAL),
        *(sa.Column(name, _BOOL) for name in ("valid", "partial")),
        sa.Column("tries", _INT),
        sa.Column("took_s", _REAL),
        *(sa.Column(name, _TEXT) for name in ("evidence_json", "looked_at_json", "detail")),
        sa.Column("at_s", _REAL),
        sa.Column("trace_id", _TEXT),
    )
    op.add_column("samples", sa.Column("repeated_share", _REAL))

"""Counts of call rows that were deleted.

Frozen: later changes are migrations of their own. What columns mean is said in services/ledger/core/tables.
"""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"

_KEY = {"primary_key": True, "nullable": False, "autoincrement": False}


def upgrade() -> None:
    op.create_table(
        "compacted",
        *(sa.Column(name, sa.Text, **_KEY) for name in ("run", "sample_id")),
        sa.Column("execution_id", sa.Text),
        sa.Column("purpose", sa.Text),
        *(sa.Column(name, sa.BigInteger) for name in ("records", "answered", "tokens")),
        sa.Column("compacted_at_s", sa.Double),
    )

"""Samples that a step's trainer could not train.

Frozen: later changes are migrations of their own. What columns mean is said in services/ledger/core/tables.
"""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"

_KEY = {"primary_key": True, "nullable": False, "autoincrement": False}


def upgrade() -> None:
    op.create_table(
        "refused",
        sa.Column("run", sa.Text, **_KEY),
        sa.Column("step", sa.BigInteger, **_KEY),
        sa.Column("sample_id", sa.Text, **_KEY),
        sa.Column("reason", sa.Text),
    )

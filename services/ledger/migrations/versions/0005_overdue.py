"""Batches whose wait was over before everything had arrived.

Frozen: later changes are migrations of their own. What columns mean is said in services/ledger/core/tables.py.
"""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"

_KEY = {"primary_key": True, "nullable": False, "autoincrement": False}


def upgrade() -> None:
    op.create_table(
        "overdue",
        sa.Column("run", sa.Text, **_KEY),
        sa.Column("step", sa.BigInteger, **_KEY),
        sa.Column("ordinal", sa.BigInteger, **_KEY),
        sa.Column("policy", sa.Text),
        sa.Column("executions", sa.BigInteger),
        sa.Column("execution_ids_json", sa.Text),
        sa.Column("turns", sa.BigInteger),
        sa.Column("turns_target", sa.BigInteger),
        sa.Column("waited_s", sa.Double),
        sa.Column("at_s", sa.Double),
    )

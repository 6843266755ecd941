"""Call records that were left out of their tree, with the reason.

Frozen: later changes are migrations of their own. What columns mean is said in services/ledger/core/tables.py.
"""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"

_KEY = {"primary_key": True, "nullable": False, "autoincrement": False}


def upgrade() -> None:
    op.create_table(
        "set_aside",
        sa.Column("run", sa.Text, **_KEY),
        sa.Column("call_id", sa.Text, **_KEY),
        sa.Column("execution_id", sa.Text),
        sa.Column("group_id", sa.Text),
        sa.Column("attempt", sa.BigInteger),
        sa.Column("reason", sa.Text),
        sa.Column("detail", sa.Text),
        sa.Column("tokens", sa.BigInteger),
        sa.Column("at_s", sa.Double),
    )

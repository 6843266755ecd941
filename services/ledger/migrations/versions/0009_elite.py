"""The elite store: keys of successes, and which were trained again.

Frozen: later changes are migrations of their own. What columns mean is said in services/ledger/core/tables.py.
"""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"

_KEY = {"primary_key": True, "nullable": False, "autoincrement": False}


def upgrade() -> None:
    op.add_column("samples", sa.Column("elite_key", sa.Text))
    op.create_table(
        "elite_replays",
        sa.Column("run", sa.Text, **_KEY),
        sa.Column("step", sa.BigInteger, **_KEY),
        sa.Column("sample_id", sa.Text, **_KEY),
        sa.Column("position", sa.BigInteger),
    )

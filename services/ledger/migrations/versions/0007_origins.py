"""Replays and resamples, told apart.

Frozen: later changes are migrations of their own. What columns mean is said in services/ledger/core/tables.py.
"""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    op.add_column("attempts", sa.Column("is_replay", sa.Boolean))
    op.add_column("samples", sa.Column("origin", sa.Text))
    op.add_column("batches", sa.Column("origins_json", sa.Text))

"""When milestones were verified, and what an execution's segments were credited with.

Frozen: later changes are migrations of their own. What columns mean is said in services/ledger/core/tables.py.
"""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    op.add_column("attempts", sa.Column("milestone_turns_json", sa.Text))
    op.add_column("samples", sa.Column("segments", sa.BigInteger))
    op.add_column("samples", sa.Column("kappa", sa.Double))
    op.add_column("samples", sa.Column("segment_starts_json", sa.Text))
    op.add_column("samples", sa.Column("segment_advantages_json", sa.Text))

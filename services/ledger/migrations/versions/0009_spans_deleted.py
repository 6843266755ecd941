"""Up to when spans were deleted.

Frozen: later changes are migrations of their own. What columns mean is said in services/ledger/core/tables.
"""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    op.create_table(
        "spans_deleted",
        sa.Column("run", sa.Text, primary_key=True, nullable=False, autoincrement=False),
        sa.Column("before_ns", sa.BigInteger),
    )

"""What decided a call's role.

Frozen: later changes are migrations of their own. What columns mean is said in services/ledger/core/tables.py.
"""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    op.add_column("calls", sa.Column("role_rule", sa.Text))

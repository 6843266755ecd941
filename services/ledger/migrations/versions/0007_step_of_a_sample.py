"""The step of a sample is in the index by which it is looked up.

Without statistics SQLite takes an index that has all that is asked for, however much of it has to be read.

Frozen: later changes are migrations of their own. What columns mean is said in services/ledger/core/tables.
"""

from alembic import op

revision = "0007"
down_revision = "0006"

_TABLES = ("step_samples", "batch_samples")


def upgrade() -> None:
    for table in _TABLES:
        op.drop_index(f"{table}_by_sample_id", table)
        op.create_index(f"{table}_by_sample_id", table, ["run", "sample_id", "step"])

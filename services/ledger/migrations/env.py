"""Alembic's entry point. The ledger hands over an open connection; the transaction is the caller's."""

from alembic import context

from services.ledger.core.tables import METADATA

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=METADATA,
    render_as_batch=True,
    transaction_per_migration=False,
)
context.run_migrations()

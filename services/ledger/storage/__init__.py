"""The database: engines and migrations, and the one thread that writes."""

from services.ledger.storage.database import Database, database_url
from services.ledger.storage.writer import Stored, Writer

__all__ = ["Database", "Stored", "Writer", "database_url"]

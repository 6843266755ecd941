"""What the books take, and what is left on their disk."""

import shutil
from pathlib import Path

import sqlalchemy as sa

from services.ledger.storage.database import Database


def sizes(database: Database) -> tuple[int | None, int | None]:
    """(bytes of the database, bytes free on its disk); None where they cannot be seen."""
    if not database.is_sqlite:
        with database.read() as connection:
            return connection.scalar(sa.text("SELECT pg_database_size(current_database())")), None
    path = Path(database.url.database or "")
    if not path.is_file():
        return None, None
    taken = sum(part.stat().st_size for part in (path, path.with_name(path.name + "-wal")) if part.exists())
    return taken, shutil.disk_usage(path.parent).free

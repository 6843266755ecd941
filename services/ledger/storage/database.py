"""Engines: one connection that writes, readers with snapshots of their own; migrations at start."""

import contextlib
import logging
from collections.abc import Iterator
from pathlib import Path

import sqlalchemy as sa
from alembic import command
from alembic.config import Config as AlembicConfig
from alembic.util import CommandError

from gyre.config import Config
from gyre.errors import ConfigError, Unavailable
from gyre.run_folder import RunFolder
from services.ledger.core.tables import METADATA
from services.ledger.storage.settling import settle_all
from services.ledger.storage.trouble import is_trouble

log = logging.getLogger(__name__)

BUSY_TIMEOUT_S = 5.0
"""How long SQLite itself waits for another process's lock before the writer's own retries take over."""
MIGRATION_LOCK = 0x67797265
"""PostgreSQL advisory lock, so that ledgers that start together migrate one after the other."""


def database_url(config: Config, folder: RunFolder) -> str:
    """The configured SQLAlchemy URL, else SQLite in the run's folder. psycopg 3 is the driver for `postgresql://`."""
    url = config.ledger.database or f"sqlite:///{folder.database}"
    return url.replace("postgresql://", "postgresql+psycopg://", 1)


class Database:
    """One ledger database, migrated to the present schema."""

    def __init__(self, url: str) -> None:
        """Raises ConfigError for a URL that names no usable database, Unavailable when it cannot be reached."""
        try:
            self.url = sa.make_url(url)
            self.is_sqlite = self.url.get_backend_name() == "sqlite"
            self.writing = self._engine("BEGIN IMMEDIATE", query_only=False)
            self.reading = self._engine("BEGIN", query_only=True)
        except (sa.exc.ArgumentError, ModuleNotFoundError) as error:
            raise ConfigError(f"ledger.database {url!r}: {error}") from error

    def _engine(self, begin: str, query_only: bool) -> sa.Engine:
        if not self.is_sqlite:
            isolation = "REPEATABLE READ" if query_only else "READ COMMITTED"
            engine = sa.create_engine(self.url, isolation_level=isolation, pool_pre_ping=True)
            sa.event.listen(engine, "connect", _without_compiling)
            return engine
        engine = sa.create_engine(self.url, connect_args={"timeout": BUSY_TIMEOUT_S, "check_same_thread": False})

        @sa.event.listens_for(engine, "connect")
        def _connected(connection, _record) -> None:
            # The driver's own transaction handling begins too late for a read snapshot; BEGIN is said below.
            connection.isolation_level = None
            for pragma in ("journal_mode=WAL", "synchronous=FULL", f"query_only={int(query_only)}"):
                connection.execute(f"PRAGMA {pragma}").fetchall()

        @sa.event.listens_for(engine, "begin")
        def _begun(connection: sa.Connection) -> None:
            connection.exec_driver_sql(begin)

        return engine

    def migrate(self) -> None:
        """Bring the schema up to date; does nothing where it is. Raises Unavailable as `usable`."""
        with self.usable():
            with self.writing.begin() as connection:
                if not self.is_sqlite:
                    connection.execute(sa.text(f"SELECT pg_advisory_xact_lock({MIGRATION_LOCK})"))
                upgrade(connection)
                if connection.dialect.supports_comments:
                    _comment(connection)
            self._settle()

    def _settle(self) -> None:
        """As the writer does: groups that cannot be settled are asked without settled lines, only slower."""
        try:
            settle_all(self.writing)
        except Exception as error:
            if is_trouble(error):
                raise
            log.warning("groups could not be settled: %s", error)

    @contextlib.contextmanager
    def usable(self) -> Iterator[None]:
        """Raises Unavailable for what goes wrong with the database inside: it is not reached, no database, damaged, of another version of Gyre."""
        try:
            yield
        except (sa.exc.DBAPIError, CommandError) as error:
            words = " ".join(str(getattr(error, "orig", error)).split())
            raise Unavailable(f"the ledger database {self.url!r} cannot be used: {words}") from error

    @contextlib.contextmanager
    def read(self) -> Iterator[sa.Connection]:
        """A connection that sees one state of the books throughout, and cannot write."""
        with self.reading.connect() as connection, connection.begin():
            yield connection

    def close(self) -> None:
        self.writing.dispose()
        self.reading.dispose()


def _without_compiling(connection, _record) -> None:
    """PostgreSQL compiles a statement whose estimated cost is high; of the books' long ones that takes it seconds, a hundred times what they run."""
    connection.execute("SET jit = off")
    connection.commit()


def _comment(connection: sa.Connection) -> None:
    """What tables and columns mean, for whoever looks at them with psql."""
    for table in METADATA.tables.values():
        connection.execute(sa.schema.SetTableComment(table))
        for column in table.columns:
            if column.comment:
                connection.execute(sa.schema.SetColumnComment(column))


def upgrade(connection: sa.Connection, revision: str = "head") -> None:
    """Run the migrations of services/ledger/migrations inside the connection's transaction."""
    config = AlembicConfig()
    config.set_main_option("script_location", str(Path(__file__).parent.parent / "migrations"))
    config.attributes["connection"] = connection
    command.upgrade(config, revision)

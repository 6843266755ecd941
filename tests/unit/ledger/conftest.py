import contextlib

import pytest

from services.ledger.storage import Database
from tests.unit.ledger import postgres as pg
from tests.unit.ledger.ledger_history import history, kept_books, store


@pytest.fixture
def books_of(tmp_path):
    """Facts → a ledger that holds them."""
    made = []

    def build(facts):
        made.append(kept_books(tmp_path / f"ledger{len(made)}.db", facts))
        return made[-1]

    yield build
    for database in made:
        database.close()


@pytest.fixture
def whole(books_of):
    return books_of(history())


@pytest.fixture(scope="session")
def postgres_server():
    with pg.server() as url:
        yield url


@pytest.fixture
def postgres(postgres_server):
    """URL of an empty PostgreSQL database."""
    with pg.database(postgres_server) as url:
        yield url


@pytest.fixture
def on_postgres(postgres_server):
    """Facts → a ledger on PostgreSQL that holds them."""
    with contextlib.ExitStack() as stack:

        def build(facts):
            database = Database(stack.enter_context(pg.database(postgres_server)))
            stack.callback(database.close)
            database.migrate()
            store(database, facts)
            return database

        yield build

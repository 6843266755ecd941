import pytest

from tests.unit.ledger.ledger_history import history, kept_books


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

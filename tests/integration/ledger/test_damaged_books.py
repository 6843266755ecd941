"""Books that cannot be read are named, with what is wrong with them: never a library's address or a traceback (C6, E)."""

import contextlib
import os
import sqlite3
from pathlib import Path

import pytest

from tests.integration.ledger.command import gyre

PAGE_BYTES = 4096


def garbage(file: Path) -> None:
    file.write_text("garbage\n")


def overwritten(file: Path) -> None:
    """All but the first pages, which say that it is a database and what is in it."""
    with file.open("r+b") as books:
        books.seek(3 * PAGE_BYTES)
        books.write(os.urandom(file.stat().st_size - 3 * PAGE_BYTES))


def newer(file: Path) -> None:
    _execute(file, "UPDATE alembic_version SET version_num = '9999'")


def without_a_table(file: Path) -> None:
    _execute(file, "DROP TABLE attempts")


def a_folder(file: Path) -> None:
    file.unlink()
    file.mkdir()


def _execute(file: Path, statement: str) -> None:
    with contextlib.closing(sqlite3.connect(file)) as connection, connection:
        connection.execute(statement)


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (garbage, "file is not a database"),
        (overwritten, "malformed"),
        (newer, "Can't locate revision identified by '9999'"),
        (without_a_table, "no such table: attempts"),
        (a_folder, "unable to open database file"),
    ],
)
def test_damaged_books_are_named_with_what_is_wrong(run, damage, said):
    damage(run.database)
    words = gyre("audit", "--run", run.root, code=2)
    assert words.startswith(f"gyre: the ledger database sqlite:///{run.database} cannot be used: ") and said in words
    assert len(words.splitlines()) == 1

"""Whose fault it is that a transaction failed: the database's, which is tried again, or that of what was to be stored.

Being wrong costs differently: trouble that is taken for a record's fault throws records away while the disk is full; a record's fault that is taken
for trouble is tried again for ever, and nothing is stored behind it. So a record is only blamed for what a database says of values and statements.
"""

import sqlite3

import sqlalchemy as sa

_SQLITE_OWN = {
    sqlite3.SQLITE_ERROR, sqlite3.SQLITE_TOOBIG, sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_MISMATCH, sqlite3.SQLITE_RANGE,
}  # fmt: skip
"""Of SQLite's primary codes; the others tell of locks, memory, the disk, the file."""
_SCHEMA_WORDS = ("no such ", "has no column")
"""Of SQLITE_ERROR, which also says that the file is not the one that was migrated."""
_SQLSTATE_OWN = ("0A", "21", "22", "23", "54")
"""Classes of PostgreSQL's: not supported, cardinality, data, integrity, program limits. The others tell of connections, locks, resources, rights,
the schema, operators and defects."""


def is_trouble(error: BaseException) -> bool:
    """Did the database fail, so that the same may succeed later? Of an error while a statement was carried out."""
    if isinstance(error, sa.exc.TimeoutError):
        return True
    if not isinstance(error, sa.exc.DBAPIError):
        return False
    if error.connection_invalidated:
        return True
    cause = error.orig
    if isinstance(cause, sqlite3.Error):
        # what the driver itself finds has no code: values that it cannot bind
        code = getattr(cause, "sqlite_errorcode", None)
        return code is not None and (
            code & 0xFF not in _SQLITE_OWN or any(words in str(cause) for words in _SCHEMA_WORDS)
        )
    # as there: the driver's own word, of too many values for instance
    state = getattr(cause, "sqlstate", None)
    return state is not None and not state.startswith(_SQLSTATE_OWN)

"""How tables are declared: one metadata, one short form for columns with their comments."""

from typing import Any

import sqlalchemy as sa

METADATA = sa.MetaData()

_TYPES = {"text": sa.Text, "int": sa.BigInteger, "real": sa.Double, "bool": sa.Boolean}


def table(name: str, comment: str, key: str, columns: str, **options: Any) -> sa.Table:
    """`key` and each line of `columns`: `name type [# comment]`; keys follow `run`. `options`: of one database, e.g. `sqlite_with_rowid`."""
    made = [sa.Column("run", sa.Text, primary_key=True)]
    made += [_column(word, primary_key=True) for word in key.split(",") if word.strip()]
    made += [_column(line) for line in columns.strip().splitlines()]
    return sa.Table(name, METADATA, *made, comment=comment, **options)


def _column(line: str, primary_key: bool = False) -> sa.Column:
    declaration, _, comment = line.partition("#")
    name, kind = declaration.split()
    return sa.Column(
        name, _TYPES[kind], primary_key=primary_key, nullable=not primary_key, comment=comment.strip() or None,
        autoincrement=False,
    )  # fmt: skip

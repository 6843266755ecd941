"""The schema: one set of tables for SQLite and PostgreSQL, one file a book. Column comments say where a value comes from and what it serves.

Every table is keyed by `run` and its fact's natural key, so that several runs may share a database and a repeated fact changes
nothing. Text columns named *_json hold JSON. Times end in `_at_s` (Unix seconds). NULL means: this part of the story has not been told yet.
Rows that several facts tell together (MERGED) are filled column by column, numbers of running totals (ADDED) are added up, each fact once and
in its own transaction; all other rows are written once.
"""

import sqlalchemy as sa

from services.ledger.core.schema import METADATA
from services.ledger.core.tables import book_lines, cells, costs, executions, run, samples, steps
from services.ledger.core.tables.run import FACTS, INTAKE

__all__ = [
    "ADDED",
    "FACTS",
    "INTAKE",
    "MERGED",
    "METADATA",
    "book_lines",
    "cells",
    "costs",
    "executions",
    "run",
    "samples",
    "steps",
]

MERGED = frozenset({"attempts", "batch_groups", "steps", "micro", "commands", "elite_replays"})
ADDED = frozenset({"costs", "usage", "book_totals"})

for _name, _on in (
    ("attempts", "sample_id"), ("calls", "sample_id"), ("samples", "execution_id"), ("drops", "execution_id"), ("executions", "group_id"),
    ("costs", "group_id"), ("usage", "version"), ("attempts", "leased_at_s"), ("batch_groups", "group_id"),
):  # fmt: skip
    sa.Index(f"{_name}_by_{_on}", *(METADATA.tables[_name].c[column] for column in ("run", _on)))

# with the step, which is what is asked of a sample: an index that has it all is the one that SQLite takes
for _name in ("step_samples", "batch_samples"):
    sa.Index(f"{_name}_by_sample_id", *(METADATA.tables[_name].c[column] for column in ("run", "sample_id", "step")))

_ATTEMPTS = METADATA.tables["attempts"].c
_IS_LIMITED = _ATTEMPTS.quota_left >= 0
sa.Index(
    "attempts_by_quota_left",
    _ATTEMPTS.run,
    _ATTEMPTS.quota_left,
    sqlite_where=_IS_LIMITED,
    postgresql_where=_IS_LIMITED,
)

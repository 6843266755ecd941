"""Groups settle: their lines in bills and books are made when nothing has been told of them for a while, and taken back when something is (C6, C12).

Which groups have settled changes no answer, only how long it takes: the others are added up while it is made.
"""

from collections.abc import Iterable

import sqlalchemy as sa

from services.ledger.core.bill_lines import COLUMNS, lines
from services.ledger.core.book_lines import FATE_COLUMNS, STEP_COLUMNS, fates, used
from services.ledger.core.parts import in_parts
from services.ledger.core.tables.book_lines import FATE_LINES, STEP_LINES
from services.ledger.core.tables.costs import BILL_LINES, UNSETTLED

UNSETTLED_MAX = 512
"""Groups that are left unsettled, those told of last: what is under way would only be settled again and again."""
SLICE_GROUPS = 64
"""Settled at a time: one transaction stays short."""

TELLING = frozenset({"executions", "dispatches", "costs", "attempts", "samples", "drops", "batch_groups"})
"""Tables that lines are made of (`step_samples` come with `costs`): a row for one of them takes its group's lines back."""

_OLDEST = sa.text("SELECT group_id FROM unsettled WHERE run = :run ORDER BY sequence, group_id LIMIT :most")
_COUNT = sa.text("SELECT count(*) FROM unsettled WHERE run = :run")


def _settling(table: str, columns: tuple[str, ...], made: str) -> sa.TextClause:
    query = f"INSERT INTO {table} (run, {', '.join(columns)}) SELECT :run, l.* FROM ({made}) l".replace(
        "(:groups)", ":groups"
    )
    return sa.text(query).bindparams(sa.bindparam("groups", expanding=True))


_LINES = {
    BILL_LINES: _settling("bill_lines", COLUMNS, lines(":groups")),
    FATE_LINES: _settling("fate_lines", FATE_COLUMNS, fates(":groups")),
    STEP_LINES: _settling("step_lines", STEP_COLUMNS, used(":groups")),
}
"""Table → the statement that makes the lines of `:groups` in it."""
_RUNS = sa.text("SELECT run, count(*) AS groups FROM unsettled GROUP BY run")


def unsettle(connection: sa.Connection, insert, run: str, groups: Iterable[str], sequence: int) -> None:
    """Take back the lines of `groups`, of which a fact up to `sequence` tells something new. `insert`: the dialect's."""
    rows = [{"run": run, "group_id": group, "sequence": sequence} for group in sorted(groups)]
    if not rows:
        return
    for named in in_parts(row["group_id"] for row in rows):
        for table in _LINES:
            connection.execute(table.delete().where(table.c.run == run, table.c.group_id.in_(named)))
    statement = insert(UNSETTLED)
    statement = statement.on_conflict_do_update(
        index_elements=["run", "group_id"], set_={"sequence": statement.excluded.sequence}
    )
    connection.execute(statement, rows)


def settle(connection: sa.Connection, run: str, keep: int | None = None) -> int:
    """Settle a slice of the groups told of longest ago where more than `keep` (by default UNSETTLED_MAX) and a slice are left; how many were."""
    keep = UNSETTLED_MAX if keep is None else keep
    most = min(SLICE_GROUPS, connection.scalar(_COUNT, {"run": run}) - keep)
    if most < (SLICE_GROUPS if keep else 1):
        return 0
    groups = list(connection.scalars(_OLDEST, {"run": run, "most": most}))
    for make in _LINES.values():
        connection.execute(make, {"run": run, "groups": groups})
    connection.execute(UNSETTLED.delete().where(UNSETTLED.c.run == run, UNSETTLED.c.group_id.in_(groups)))
    return len(groups)


def settle_all(writing: sa.Engine, keep: int | None = None) -> None:
    """Settle every run's groups but `keep`, slice by slice: after a migration, and before a database is measured."""
    with writing.begin() as connection:
        runs = [row.run for row in connection.execute(_RUNS)]
    for run in runs:
        settled = 1
        while settled:
            with writing.begin() as connection:
                settled = settle(connection, run, keep)

"""Running plain SQL, and the pieces of SQL that several questions share. Everything here runs on SQLite and PostgreSQL alike."""

import json
import re
from decimal import Decimal
from typing import Any

import sqlalchemy as sa

from services.ledger.core.tables import METADATA

_BOOLEANS = {
    column.name for table in METADATA.tables.values() for column in table.columns if isinstance(column.type, sa.Boolean)
}

CONSUMED = """
SELECT run, step, group_id FROM batch_groups
UNION
SELECT run, step, group_id FROM drops WHERE step >= 0 AND reason IN ('no_gradient', 'quota', 'truncated', 'no_targets')
"""
"""(run, step, group_id): groups that a batch used up, whether or not they had a gradient."""

CALL_COUNTS = """
SELECT sample_id, execution_id, purpose, 1 AS records, CASE WHEN finish_reason <> 'cancelled' THEN 1 ELSE 0 END AS answered, output_tokens AS tokens
FROM calls WHERE run = :run
UNION ALL SELECT sample_id, execution_id, purpose, records, answered, tokens FROM compacted WHERE run = :run
"""
"""Call records of the run, those whose rows are deleted as the counts that are left of them; several rows a sample."""

GROUP_VERSION = """
SELECT run, group_id, min(policy_version) AS policy_version FROM dispatches GROUP BY run, group_id
"""
"""v_d of each group: its first dispatch; age is never started over."""

FATES = """
SELECT e.run, e.execution_id, e.purpose, COALESCE(t.trained, 0) AS trained, d.reason AS dropped
FROM executions e
LEFT JOIN (SELECT s.run, s.execution_id, count(*) AS trained
           FROM step_samples t JOIN samples s ON s.run = t.run AND s.sample_id = t.sample_id
           GROUP BY s.run, s.execution_id) t ON t.run = e.run AND t.execution_id = e.execution_id
LEFT JOIN (SELECT run, execution_id, max(reason) AS reason FROM drops WHERE reason <> 'duplicate'
           GROUP BY run, execution_id) d ON d.run = e.run AND d.execution_id = e.execution_id
"""
"""Each dispatched execution: how often it was trained, and why it was dropped (NULL: it was not)."""


def rows(connection: sa.Connection, query: str, **values: Any) -> list[dict[str, Any]]:
    """Each row by column name. PostgreSQL's Decimals (sums, averages) become int or float, as SQLite gives them."""
    found = connection.execute(sa.text(query), values).mappings()
    return [{name: _plain(value) for name, value in row.items()} for row in found]


def _plain(value: Any) -> Any:
    if not isinstance(value, Decimal):
        return value
    exponent = value.as_tuple().exponent
    return int(value) if isinstance(exponent, int) and exponent >= 0 else float(value)


def one(connection: sa.Connection, query: str, **values: Any) -> dict[str, Any]:
    """The first row; an empty dictionary when there is none."""
    found = rows(connection, query, **values)
    return found[0] if found else {}


def number(value: Any) -> float | int:
    """A sum, average or maximum over nothing is NULL: 0."""
    return 0 if value is None else value


def unpacked(row: dict[str, Any]) -> dict[str, Any]:
    """`name_json` columns → `name`, parsed; booleans as booleans (SQLite gives 0 and 1)."""
    plain = {}
    for name, value in row.items():
        if name.endswith("_json"):
            plain[name.removesuffix("_json")] = None if value is None else json.loads(value)
        else:
            plain[name] = bool(value) if name in _BOOLEANS and value is not None else value
    return plain


def pasteable(query: str, **values: Any) -> str:
    """The query with its parameters filled in, to be run by hand."""
    text = re.sub(r"\s+", " ", query).strip()
    for name, value in values.items():
        written = "'" + value.replace("'", "''") + "'" if isinstance(value, str) else str(value)
        text = re.sub(rf"(?<!:):{name}\b", lambda _match, written=written: written, text)
    return text

"""Executions worth showing again: what an offline data set is made of (D12).

`good` answers:

    samples  [{sample_id, task_id, task_type, tenant, reward, turns, tokens_tree, step}], by name, a page of them: successes of train groups that a
             verified outcome or rule made one, not dropped for what they are (voided, rolled back, duplicates)
    next     cursor of the next page, empty after the last
"""

from typing import Any

import sqlalchemy as sa

from gyre.errors import InvalidInput
from services.ledger.queries.sql import rows

LIMIT, LIMIT_MAX = 1_000, 10_000

GOOD = """
SELECT s.sample_id, g.task_id, s.task_type, s.tenant, s.reward, s.turns, s.tokens_tree, t.step
FROM samples s
LEFT JOIN groups g ON g.run = s.run AND g.group_id = s.group_id
LEFT JOIN step_samples t ON t.run = s.run AND t.sample_id = s.sample_id
LEFT JOIN drops d ON d.run = s.run AND d.sample_id = s.sample_id
WHERE s.run = :run AND s.success AND NOT s.truncated AND s.sample_id > :after
  AND COALESCE(d.reason, '') NOT IN ('voided', 'rolled_back', 'duplicate', 'evaluation_failed')
ORDER BY s.sample_id LIMIT :most
"""


def good(connection: sa.Connection, run: str, after: str = "", limit: int = LIMIT) -> dict[str, Any]:
    """The answer whose shape the module's docstring gives. Raises InvalidInput for a `limit` out of range."""
    if not 1 <= limit <= LIMIT_MAX:
        raise InvalidInput(f"limit {limit}: from 1 to {LIMIT_MAX}")
    page = rows(connection, GOOD, run=run, after=after, most=limit + 1)
    return {"samples": page[:limit], "next": page[limit - 1]["sample_id"] if len(page) > limit else ""}

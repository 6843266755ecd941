"""SQL of a group's lines in bills, made of running totals (C12). Runs on SQLite and PostgreSQL alike."""

from services.ledger.core.costs import UNKNOWN

COLUMNS = (
    "group_id", "version", "attempt", "retry", "share", "turns", "tokens", "targets", "compute_s", "occupancy_s", "external_calls",
)  # fmt: skip
"""Of a line, in the order in which `lines` selects them."""

UNSETTLED = "SELECT group_id FROM unsettled WHERE run = :run"

_RETRY = """
CASE WHEN EXISTS (
    SELECT 1 FROM costs d WHERE d.run = c.run AND d.execution_id = c.execution_id
    AND CASE WHEN c.trained > 0 THEN d.trained > 0 AND d.attempt > c.attempt ELSE d.trained > 0 OR d.attempt > c.attempt END
) THEN 1 ELSE 0 END
"""
"""Whether an attempt counts for its execution (0: the newest that was trained, else the newest) or is extra (1)."""

_SHARE = "CASE WHEN a.tokens > 0 THEN 1.0 * u.tokens / a.tokens ELSE 1.0 END"
"""A version's part of an attempt, by its tokens."""


def lines(groups: str) -> str:
    """A SELECT of COLUMNS. `groups`: SQL that follows `group_id IN (…)`; the statement binds `:run`, and what `groups` binds."""
    shared = ", ".join(
        f"COALESCE(sum(a.{name} * {_SHARE}), 0.0) AS {name}" for name in ("targets", "compute_s", "occupancy_s", "external_calls")
    )  # fmt: skip
    return f"""
SELECT a.group_id, COALESCE(u.version, {UNKNOWN}) AS version, a.attempt, a.retry, sum({_SHARE}) AS share,
       COALESCE(sum(u.turns), 0.0) AS turns, COALESCE(sum(u.tokens), 0) AS tokens, {shared}
FROM (SELECT c.*, {_RETRY} AS retry FROM costs c WHERE c.run = :run AND c.group_id IN ({groups})) a
LEFT JOIN usage u ON u.run = a.run AND u.execution_id = a.execution_id AND u.attempt = a.attempt
GROUP BY a.group_id, COALESCE(u.version, {UNKNOWN}), a.attempt, a.retry
"""

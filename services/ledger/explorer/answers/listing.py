"""The rows behind every point: attempts of a scope, a page at a time, newest first.

`listing` answers {rows: [{sample, group, tenant, task_type, tier, state, ending, reason, dispatched, step, age, tokens_age, turns, tokens, reward,
advantage, leased_at_s, waited_s, active_s}], next: cursor or ""}.
"""

from typing import Any

import sqlalchemy as sa

from gyre.errors import InvalidInput
from gyre.numbers import real
from services.ledger.explorer.answers.attempts import Attempt, chosen, details, ordered
from services.ledger.explorer.scope import Scope

PAGE = 200
UNTOLD = "-"
"""In a cursor: the lease of its row was not told."""


def listing(connection: sa.Connection, scope: Scope) -> dict[str, Any]:
    """One page. Raises InvalidInput for a cursor that is none."""
    query, values = chosen(scope)
    values["limit"] = min(scope.limit, PAGE)
    if scope.after:
        condition, bound = _behind(scope.after)
        query, values = query + condition, values | bound
    found = connection.execute(sa.text(f"{query} {ordered(scope)} LIMIT :limit"), values).all()
    attempts = details(connection, scope, list(dict.fromkeys(row[0] for row in found)))
    is_full = len(found) == values["limit"]
    return {
        "rows": [row(attempt) for attempt in attempts],
        "next": f"{UNTOLD if found[-1][1] is None else repr(found[-1][1])} {found[-1][0]}" if is_full else "",
    }


def _behind(cursor: str) -> tuple[str, dict[str, Any]]:
    """What comes after a cursor in the order of `ordered`, and its bound values."""
    at, _, sample = cursor.partition(" ")
    if at == UNTOLD:
        return " AND a.leased_at_s IS NULL AND a.sample_id > :after", {"after": sample}
    try:
        bound = {"after_s": real(at), "after": sample}
    except ValueError as error:
        raise InvalidInput(f"after={cursor}: a cursor of this list") from error
    later = "a.leased_at_s < :after_s OR (a.leased_at_s = :after_s AND a.sample_id > :after) OR a.leased_at_s IS NULL"
    return f" AND ({later})", bound


def row(attempt: Attempt) -> dict[str, Any]:
    step, dispatched = attempt.step, attempt.dispatched
    return {
        "sample": attempt.sample_id, "group": attempt.group_id, "tenant": attempt.tenant, "task_type": attempt.task_type, "tier": attempt.tier,
        "state": attempt.state, "ending": attempt.ending, "reason": attempt.drop_reason or attempt.ending_reason,
        "dispatched": dispatched, "step": step, "age": None if step is None or dispatched is None else step - dispatched,
        "tokens_age": None if step is None or attempt.version_min is None else step - attempt.version_min,
        "turns": attempt.turns, "tokens": attempt.tokens, "reward": attempt.reward, "advantage": attempt.advantage,
        "leased_at_s": attempt.leased_at_s,
        "waited_s": _between(attempt.submitted_at_s, attempt.leased_at_s), "active_s": _between(attempt.leased_at_s, attempt.ended_at_s),
    }  # fmt: skip


def _between(begin: float | None, end: float | None) -> float | None:
    return None if begin is None or end is None else round(end - begin, 3)

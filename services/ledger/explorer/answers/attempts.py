"""Attempts that a scope is about: the rows behind every point.

Two stages: the filters choose sample ids (driven by the narrowest filter's index), then details of those ids are read by index. An `Attempt` is a
tuple row with what every screen needs; versions are optimizer steps done.

SQLite without statistics prefers a covering index that follows `run` only, which is the whole run. So step_samples is asked for `targets`
too, which no index covers; joins that must begin with it are CROSS JOINs, whose order SQLite keeps; and where a filter is narrow the order is
on `+column`.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import sqlalchemy as sa

from services.ledger.explorer.answers.columns import rows_of
from services.ledger.explorer.scope import Scope

CALLS_MAX = 250_000
"""Calls that one page is drawn from: of executions with hundreds of calls each, fewer than of short ones."""


class Attempt(NamedTuple):
    """One attempt, joined; None where that part of its story has not been told."""

    sample_id: str
    group_id: str
    attempt: int
    tenant: str
    task_type: str
    tier: str
    purpose: str
    submitted_at_s: float | None
    dispatched_at_s: float | None
    dispatched: int | None
    """v_d"""
    leased_at_s: float | None
    started_at_s: float | None
    ended_at_s: float | None
    ending: str | None
    ending_reason: str | None
    turns: int | None
    tokens: int | None
    outcome: float | None
    ready_at_s: float | None
    reward: float | None
    advantage: float | None
    targets: int | None
    version_min: int | None
    version_mean: float | None
    version_max: int | None
    step: int | None
    """That trained it."""
    trained_at_s: float | None
    closed_at_s: float | None
    """Its batch was complete."""
    dropped_at_s: float | None
    drop_reason: str | None
    trained_targets: int | None

    @property
    def state(self) -> str:
        if self.step is not None:
            return "trained"
        if self.drop_reason is not None:
            return "dropped"
        if self.ready_at_s is not None:
            return "ready"
        return "running" if self.ended_at_s is None else "ended"


_DETAILS = """
SELECT a.sample_id, a.group_id, a.attempt, COALESCE(g.tenant, ''), COALESCE(g.task_type, ''), COALESCE(g.tier, ''), COALESCE(g.purpose, ''),
       g.at_s, d.at_s, d.policy_version, a.leased_at_s, a.started_at_s, a.ended_at_s, a.ending, a.reason, a.turns, a.tokens_sampled, a.outcome,
       s.at_s, s.reward, s.advantage, s.targets_chosen, s.version_min, s.version_mean, s.version_max,
       t.step, u.updated_at_s, b.at_s, x.at_s, x.reason, t.targets
FROM attempts a
LEFT JOIN groups g ON g.run = a.run AND g.group_id = a.group_id
LEFT JOIN dispatches d ON d.run = a.run AND d.group_id = a.group_id AND d.attempt_base =
     (SELECT min(f.attempt_base) FROM dispatches f WHERE f.run = a.run AND f.group_id = a.group_id)
LEFT JOIN samples s ON s.run = a.run AND s.sample_id = a.sample_id
LEFT JOIN step_samples t ON t.run = a.run AND t.sample_id = a.sample_id
LEFT JOIN steps u ON u.run = t.run AND u.step = t.step
LEFT JOIN batches b ON b.run = t.run AND b.step = t.step
LEFT JOIN drops x ON x.run = a.run AND x.sample_id = a.sample_id
WHERE a.run = :run AND a.sample_id IN :ids
"""


def newest(connection: sa.Connection, scope: Scope) -> list[str]:
    """Sample ids of the scope's attempts, newest lease first, at most `scope.limit`."""
    query, values = chosen(scope)
    found = connection.execute(sa.text(f"{query} {ordered(scope)} LIMIT :limit"), values)
    return list(dict.fromkeys(row[0] for row in found))


def ordered(scope: Scope) -> str:
    """Newest lease first: by its index, but where a filter is narrower than the whole run. Attempts whose lease was not told come last, which the
    databases do not agree about unless it is said."""
    is_narrow = scope.step is not None or scope.group or scope.sample
    return f"ORDER BY {'+' if is_narrow else ''}a.leased_at_s DESC NULLS LAST, a.sample_id"


def chosen(scope: Scope) -> tuple[str, dict[str, Any]]:
    """SELECT of (sample_id, leased_at_s) without an order, and its bound values; `a` are attempts, `g` groups."""
    joins, where = [], ["a.run = :run"]
    values: dict[str, Any] = {"run": scope.run, "limit": scope.limit}

    def narrow(condition: str, join: str = "", **bound: Any) -> None:
        where.append(condition)
        values.update(bound)
        if join and join not in joins:
            joins.append(join)

    groups = "JOIN groups g ON g.run = a.run AND g.group_id = a.group_id"
    samples = "JOIN samples s ON s.run = a.run AND s.sample_id = a.sample_id"
    drops = "JOIN drops x ON x.run = a.run AND x.sample_id = a.sample_id"
    if scope.tenant:
        narrow("g.tenant = :tenant", groups, tenant=scope.tenant)
    if scope.task_type:
        narrow("g.task_type = :task_type", groups, task_type=scope.task_type)
    if scope.purpose != "all":
        narrow("g.purpose = :purpose", groups, purpose=scope.purpose)
    if scope.tier:
        narrow("g.tier = :tier", groups, tier=scope.tier)
    if scope.group:
        narrow("a.group_id = :group_id", group_id=scope.group)
    if scope.sample:
        narrow("a.sample_id = :sample_id", sample_id=scope.sample)
    source = "attempts a"
    if scope.step is not None or scope.age is not None:
        source = "step_samples t CROSS JOIN attempts a"
        narrow("t.run = :run AND a.sample_id = t.sample_id")
    if scope.step is not None:
        narrow("t.step = :step", step=scope.step)
    if scope.age is not None:
        narrow("t.step - s.version_min >= :age", samples, age=scope.age)
    if scope.dispatched is not None:
        narrow(
            "EXISTS (SELECT 1 FROM dispatches d WHERE d.run = a.run AND d.group_id = a.group_id AND d.policy_version = :dispatched)",
            dispatched=scope.dispatched,
        )
    if scope.version is not None:
        narrow(
            "EXISTS (SELECT 1 FROM usage v WHERE v.run = a.run AND v.execution_id = a.execution_id AND v.attempt = a.attempt "
            "AND v.version = :version)",
            version=scope.version,
        )
    if scope.cell:
        narrow(
            "EXISTS (SELECT 1 FROM calls c WHERE c.run = a.run AND c.sample_id = a.sample_id AND c.cells_json LIKE :cell ESCAPE '!')",
            cell=f'%"{_literal(scope.cell)}"%',
        )
    if scope.reason:
        narrow("x.reason = :reason", drops, reason=scope.reason)
    if scope.state:
        narrow(_STATES[scope.state])
    if scope.from_s is not None:
        narrow("a.leased_at_s >= :from_s", from_s=scope.from_s)
    if scope.to_s is not None:
        narrow("a.leased_at_s <= :to_s", to_s=scope.to_s)
    return f"SELECT a.sample_id, a.leased_at_s FROM {source} {' '.join(joins)} WHERE {' AND '.join(where)}", values


_IN_STEP = "EXISTS (SELECT 1 FROM step_samples q WHERE q.run = a.run AND q.sample_id = a.sample_id AND COALESCE(q.targets, 0) >= 0)"
_IN_DROPS = "EXISTS (SELECT 1 FROM drops q WHERE q.run = a.run AND q.sample_id = a.sample_id)"
_IN_SAMPLES = "EXISTS (SELECT 1 FROM samples q WHERE q.run = a.run AND q.sample_id = a.sample_id)"
_STATES = {
    "trained": _IN_STEP,
    "dropped": f"NOT {_IN_STEP} AND {_IN_DROPS}",
    "ready": f"NOT {_IN_STEP} AND NOT {_IN_DROPS} AND {_IN_SAMPLES}",
    "running": f"a.ended_at_s IS NULL AND NOT {_IN_STEP} AND NOT {_IN_DROPS} AND NOT {_IN_SAMPLES}",
    "ended": f"a.ended_at_s IS NOT NULL AND NOT {_IN_STEP} AND NOT {_IN_DROPS} AND NOT {_IN_SAMPLES}",
}
"""As Attempt.state says it."""


def _literal(text: str) -> str:
    return text.replace("!", "!!").replace("%", "!%").replace("_", "!_")


def details(connection: sa.Connection, scope: Scope, ids: Sequence[str]) -> list[Attempt]:
    """In the order of `ids`. An attempt in two steps (which no audit passes) stands with the first row found."""
    found: dict[str, Attempt] = {}
    for row in rows_of(connection, _DETAILS, scope.run, ids):
        found.setdefault(row[0], Attempt(*row))
    return [found[one] for one in ids if one in found]


def within_calls(attempts: list[Attempt]) -> list[Attempt]:
    """The first of them, at least one, that have no more than CALLS_MAX calls together."""
    calls = 0
    for place, attempt in enumerate(attempts):
        calls += attempt.turns or 0
        if place and calls > CALLS_MAX:
            return attempts[:place]
    return attempts


def tenant_of(connection: sa.Connection, run: str, group: str) -> str | None:
    """Whose group it is; None where there is no such group."""
    query = sa.text("SELECT COALESCE(tenant, '') FROM groups WHERE run = :run AND group_id = :group_id")
    return connection.scalar(query, {"run": run, "group_id": group})

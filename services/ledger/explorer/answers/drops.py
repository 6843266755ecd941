"""Drops and fairness: what was lost and why, whether the long ones lose, who waits.

`drops` answers

    reasons    [{reason, meaning, samples, turns, tokens, occupancy_s, age_steps_mean, age_steps_max, waited_s_mean}]
    lengths    {edges: turns, trained: counts, dropped: counts}       how long what was trained and what was dropped had been
    truncated  [{step, share, samples}], line: truncated_share_max    of trained samples; both of the newest STEPS_MAX steps
    shares     [{tenant, task_type, groups, wait_s_mean, wait_s_max, promotions, trained, dropped}]      executions
    tiers      {tier: [{at_s, groups, wait_s_mean, wait_s_max, promotions}]}       at most POINTS of the run
"""

from collections import defaultdict
from typing import Any

import numpy as np
import sqlalchemy as sa

from gyre.records import DROP_REASONS
from services.ledger.explorer.scope import Scope
from services.ledger.queries.sql import rows
from services.ledger.queries.standing import FATES

POINTS = 60
STEPS_MAX = 2_000
BINS = 16

_REASONS = """
SELECT x.reason, count(*) AS samples, sum(x.turns) AS turns, sum(x.tokens) AS tokens, sum(x.occupancy_s) AS occupancy_s,
       avg(x.age_steps) AS age_steps_mean, max(x.age_steps) AS age_steps_max, avg(x.waited_s) AS waited_s_mean
FROM drops x {join} WHERE x.run = :run {narrow} GROUP BY x.reason ORDER BY count(*) DESC, x.reason
"""
_TRAINED = """
SELECT t.step, s.turns, s.truncated, count(*) AS samples FROM step_samples t CROSS JOIN samples s {join}
WHERE s.run = t.run AND s.sample_id = t.sample_id AND t.run = :run AND t.step >= :first {narrow} GROUP BY t.step, s.turns, s.truncated
"""
_DROPPED = """
SELECT x.turns, count(*) AS samples FROM drops x {join}
WHERE x.run = :run AND x.reason <> 'duplicate' AND x.at_s >= :from_s {narrow} GROUP BY x.turns
"""
_NEWEST = "SELECT max(step) AS step FROM steps WHERE run = :run"
_BEGAN = "SELECT min(updated_at_s) AS at_s FROM steps WHERE run = :run AND step >= :first"
_SHARES = """
SELECT g.tenant, g.task_type, count(*) AS groups, avg(d.queue_wait_s) AS wait_s_mean, max(d.queue_wait_s) AS wait_s_max,
       sum(d.promotions) AS promotions
FROM dispatches d JOIN groups g ON g.run = d.run AND g.group_id = d.group_id
WHERE d.run = :run AND d.purpose = 'train' {narrow} GROUP BY g.tenant, g.task_type ORDER BY g.tenant, g.task_type
"""
_BECAME = f"""
SELECT g.tenant, g.task_type, sum(CASE WHEN f.trained = 1 THEN f.executions ELSE 0 END) AS trained,
       sum(CASE WHEN f.dropped <> '' THEN f.executions ELSE 0 END) AS dropped
FROM ({FATES}) f JOIN groups g ON g.run = :run AND g.group_id = f.group_id
WHERE f.dispatched = 1 {{narrow}} GROUP BY g.tenant, g.task_type
"""
_WAITS = """
SELECT d.tier, d.at_s, d.queue_wait_s, d.promotions FROM dispatches d JOIN groups g ON g.run = d.run AND g.group_id = d.group_id
WHERE d.run = :run AND d.purpose = 'train' {narrow} ORDER BY d.at_s
"""


def drops(connection: sa.Connection, scope: Scope) -> dict[str, Any]:
    """The answer whose shape the module's docstring gives."""
    wanted = {name: value for name in ("tenant", "task_type", "tier") if (value := getattr(scope, name))}
    narrow = "".join(f"AND g.{name} = :{name} " for name in wanted)

    def ask(query: str, of: str = "x", **bound: Any) -> list[dict[str, Any]]:
        # without a filter on groups the join would only cost
        join = f"JOIN groups g ON g.run = {of}.run AND g.group_id = {of}.group_id" if wanted else ""
        return rows(connection, query.format(join=join, narrow=narrow), run=scope.run, **wanted, **bound)

    newest = rows(connection, _NEWEST, run=scope.run)[0]["step"]
    first = max(0, (newest or 0) - STEPS_MAX + 1)
    from_s = rows(connection, _BEGAN, run=scope.run, first=first)[0]["at_s"] if first else None
    trained = ask(_TRAINED, "s", first=first)
    return {
        "reasons": [{**row, "meaning": DROP_REASONS.get(row["reason"], "")} for row in ask(_REASONS)],
        "lengths": _lengths(trained, ask(_DROPPED, from_s=-1.0 if from_s is None else from_s)),
        "truncated": _truncated(trained), "line": scope.config.trajproc.truncated_share_max,
        "shares": _shares(ask(_SHARES), ask(_BECAME)),
        "tiers": _tiers(ask(_WAITS)),
    }  # fmt: skip


def _lengths(trained: list[dict[str, Any]], dropped: list[dict[str, Any]]) -> dict[str, Any]:
    turns = [row["turns"] or 0 for row in (*trained, *dropped)]
    if not turns:
        return {"edges": [], "trained": [], "dropped": []}
    edges = np.unique(np.linspace(0, max(turns) + 1, min(max(turns) + 1, BINS) + 1).astype(int))
    counts = [
        np.histogram([row["turns"] or 0 for row in some], edges, weights=[row["samples"] for row in some])[0]
        .astype(int)
        .tolist()
        for some in (trained, dropped)
    ]
    return {"edges": edges.tolist(), "trained": counts[0], "dropped": counts[1]}


def _truncated(trained: list[dict[str, Any]]) -> list[dict[str, Any]]:
    by_step: dict[int, list[int]] = defaultdict(lambda: [0, 0])
    for row in trained:
        by_step[row["step"]][0] += row["samples"]
        by_step[row["step"]][1] += row["samples"] if row["truncated"] else 0
    return [
        {"step": step, "samples": samples, "share": truncated / samples}
        for step, (samples, truncated) in sorted(by_step.items())
    ]


def _shares(waits: list[dict[str, Any]], became: list[dict[str, Any]]) -> list[dict[str, Any]]:
    fates = {(row["tenant"], row["task_type"]): row for row in became}
    nothing = {"trained": 0, "dropped": 0}
    return [
        {**row, **{name: fates.get((row["tenant"], row["task_type"]), nothing)[name] for name in nothing}}
        for row in waits
    ]


def _tiers(waits: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    if not waits:
        return {}
    at_s = np.array([row["at_s"] for row in waits], float)
    wait_s = np.array([row["queue_wait_s"] or 0.0 for row in waits], float)
    promotions = np.array([row["promotions"] or 0 for row in waits], int)
    tiers = np.array([row["tier"] or "" for row in waits])
    width_s = max((at_s[-1] - at_s[0]) / POINTS, 1e-3)
    stretch = np.minimum(((at_s - at_s[0]) / width_s).astype(int), POINTS - 1)
    found: dict[str, list[dict[str, Any]]] = {}
    for tier in np.unique(tiers):
        found[str(tier)] = []
        for index in np.unique(stretch[tiers == tier]):
            of = (tiers == tier) & (stretch == index)
            found[str(tier)].append(
                {"at_s": float(at_s[0] + index * width_s), "groups": int(of.sum()), "wait_s_mean": float(wait_s[of].mean()),
                 "wait_s_max": float(wait_s[of].max()), "promotions": int(promotions[of].sum())}
            )  # fmt: skip
    return found

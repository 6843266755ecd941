"""Drops and fairness: what was lost and why, whether the long ones lose, who waits.

`drops` answers

    reasons    [{reason, meaning, samples, turns, tokens, occupancy_s, age_steps_mean, age_steps_max, waited_s_mean}]
    lengths    {edges: turns, trained: counts, dropped: counts}       how long what was trained and what was dropped had been
    truncated  [{step, share, samples}], line: truncated_share_max    of trained samples
    shares     [{tenant, task_type, groups, wait_s_mean, wait_s_max, promotions, trained, dropped}]
    tiers      {tier: [{at_s, groups, wait_s_mean, wait_s_max, promotions}]}       at most POINTS of the run
"""

from collections import defaultdict
from typing import Any

import numpy as np
import sqlalchemy as sa

from gyre.records import DROP_REASONS
from services.ledger.explorer.scope import Scope
from services.ledger.queries.sql import rows

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
WHERE s.run = t.run AND s.sample_id = t.sample_id AND t.run = :run {narrow} GROUP BY t.step, s.turns, s.truncated
"""
_DROPPED = "SELECT x.turns, count(*) AS samples FROM drops x {join} WHERE x.run = :run AND x.reason <> 'duplicate' {narrow} GROUP BY x.turns"
_SHARES = """
SELECT g.tenant, g.task_type, count(*) AS groups, avg(d.queue_wait_s) AS wait_s_mean, max(d.queue_wait_s) AS wait_s_max,
       sum(d.promotions) AS promotions
FROM dispatches d JOIN groups g ON g.run = d.run AND g.group_id = d.group_id
WHERE d.run = :run AND d.purpose = 'train' {narrow} GROUP BY g.tenant, g.task_type ORDER BY g.tenant, g.task_type
"""
_FATES = """
SELECT g.tenant, g.task_type, count(*) AS samples FROM {table} x JOIN groups g ON g.run = x.run AND g.group_id = x.group_id
WHERE x.run = :run {only} {narrow} GROUP BY g.tenant, g.task_type
"""
_IN_STEP = "AND EXISTS (SELECT 1 FROM step_samples t WHERE t.run = x.run AND t.sample_id = x.sample_id AND COALESCE(t.targets, 0) >= 0)"
_WAITS = """
SELECT d.tier, d.at_s, d.queue_wait_s, d.promotions FROM dispatches d JOIN groups g ON g.run = d.run AND g.group_id = d.group_id
WHERE d.run = :run AND d.purpose = 'train' {narrow} ORDER BY d.at_s
"""


def drops(connection: sa.Connection, scope: Scope) -> dict[str, Any]:
    """The answer whose shape the module's docstring gives."""
    wanted = {name: value for name in ("tenant", "task_type", "tier") if (value := getattr(scope, name))}
    narrow = "".join(f"AND g.{name} = :{name} " for name in wanted)

    def ask(query: str, of: str = "x", **parts: str) -> list[dict[str, Any]]:
        # without a filter on groups the join would only cost
        join = f"JOIN groups g ON g.run = {of}.run AND g.group_id = {of}.group_id" if wanted else ""
        return rows(connection, query.format(join=join, narrow=narrow, **parts), run=scope.run, **wanted)

    trained = ask(_TRAINED, "s")
    return {
        "reasons": [{**row, "meaning": DROP_REASONS.get(row["reason"], "")} for row in ask(_REASONS)],
        "lengths": _lengths(trained, ask(_DROPPED)),
        "truncated": _truncated(trained), "line": scope.config.trajproc.truncated_share_max,
        "shares": _shares(ask(_SHARES), ask(_FATES, table="samples", only=_IN_STEP), ask(_FATES, table="drops", only="")),
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
    newest = sorted(by_step)[-STEPS_MAX:]
    return [
        {"step": step, "samples": by_step[step][0], "share": by_step[step][1] / by_step[step][0]} for step in newest
    ]


def _shares(
    waits: list[dict[str, Any]], trained: list[dict[str, Any]], dropped: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    fates = [{(row["tenant"], row["task_type"]): row["samples"] for row in some} for some in (trained, dropped)]
    return [
        {
            **row,
            "trained": fates[0].get((row["tenant"], row["task_type"]), 0),
            "dropped": fates[1].get((row["tenant"], row["task_type"]), 0),
        }
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

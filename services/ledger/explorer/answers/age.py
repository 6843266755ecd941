"""Age by step.

`age` answers {law, cap, version, steps: [{step, mean, oldest, tokens_mean, tokens_oldest, executions, dropped, at_s}]}:
    mean, oldest                executions: step − v_d                                        (A5)
    tokens_mean, tokens_oldest  sampled tokens: step − version that sampled them, of the step's samples   (C8)
    dropped                     samples that this step would have had, dropped by age         (C9)
"""

from collections import defaultdict
from dataclasses import replace
from typing import Any

import sqlalchemy as sa

from gyre.config.staleness import law_steps
from services.ledger.explorer.answers.clock import policy_clock
from services.ledger.explorer.scope import Scope
from services.ledger.queries.sql import rows

STEPS_MAX = 2_000
"""Points of one curve."""

_BY_SAMPLE = """
SELECT t.step, count(*) AS executions, avg(t.step - s.policy_version) AS mean, max(t.step - s.policy_version) AS oldest,
       sum((t.step - s.version_mean) * s.targets_chosen) / NULLIF(sum(s.targets_chosen), 0) AS tokens_mean,
       max(t.step - s.version_min) AS tokens_oldest
FROM step_samples t CROSS JOIN samples s {join}
WHERE s.run = t.run AND s.sample_id = t.sample_id AND t.run = :run AND t.step >= :first AND t.step <= :last {narrow}
GROUP BY t.step ORDER BY t.step
"""
_BATCHES = "SELECT step, staleness_mean, staleness_max, at_s FROM batches WHERE run = :run AND step >= :first AND step <= :last ORDER BY step"
_DROPPED = """
SELECT s.step, count(*) AS dropped FROM drops s {join}
WHERE s.run = :run AND s.reason = 'age' AND s.step >= :first AND s.step <= :last {narrow} GROUP BY s.step
"""
_LAST = "SELECT max(step) AS step FROM steps WHERE run = :run"


def narrowed(scope: Scope, query: str) -> tuple[str, dict[str, Any]]:
    """The query for the scope's tenant and type of task, and its bound values."""
    wanted = {name: value for name in ("tenant", "task_type") if (value := getattr(scope, name))}
    join = "JOIN groups g ON g.run = s.run AND g.group_id = s.group_id" if wanted else ""
    narrow = "".join(f"AND g.{name} = :{name} " for name in wanted)
    return query.format(join=join, narrow=narrow), {"run": scope.run, **wanted}


def shown_steps(connection: sa.Connection, scope: Scope, width: int) -> dict[str, int]:
    """The steps that are shown: the scope's one, else the last `width`."""
    if scope.step is not None:
        return {"first": scope.step, "last": scope.step}
    last = rows(connection, _LAST, run=scope.run)[0]["step"]
    last = -1 if last is None else last
    return {"first": max(0, last - width + 1), "last": last}


def age(connection: sa.Connection, scope: Scope) -> dict[str, Any]:
    """The answer whose shape the module's docstring gives."""
    # also what was dropped before a batch that is still open
    bounds = shown_steps(connection, replace(scope, step=None), STEPS_MAX) | {"last": 2**31}
    query, values = narrowed(scope, _BY_SAMPLE)
    by_step: dict[int, dict[str, Any]] = defaultdict(dict)
    for row in rows(connection, query, **values, **bounds):
        by_step[row["step"]].update(row)
    query, values = narrowed(scope, _DROPPED)
    for row in rows(connection, query, **values, **bounds):
        by_step[row["step"]].update(row)
    for row in rows(connection, _BATCHES, run=scope.run, **bounds):
        found = by_step[row["step"]]
        found["at_s"] = row["at_s"]
        if not scope.tenant and not scope.task_type:
            # the batch's own word counts executions without gradient too
            found |= {"mean": row["staleness_mean"], "oldest": row["staleness_max"]}
    names = ("mean", "oldest", "tokens_mean", "tokens_oldest", "at_s")
    return {
        "law": law_steps(scope.config.scheduler), "cap": scope.config.trajproc.age_steps_max, "version": policy_clock(connection, scope.run).newest,
        "steps": [
            {"step": step, "executions": found.get("executions", 0), "dropped": found.get("dropped", 0), **{name: found.get(name) for name in names}}
            for step, found in sorted(by_step.items())
        ],
    }  # fmt: skip

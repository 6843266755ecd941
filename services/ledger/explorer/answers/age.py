"""Age by step, and where it came from.

`age` answers {law, cap, version, steps: [{step, mean, oldest, tokens_mean, tokens_oldest, executions, dropped, at_s}]}:
    mean, oldest                executions: step − v_d                                        (A5)
    tokens_mean, tokens_oldest  sampled tokens: step − version that sampled them, of the step's samples   (C8)
    dropped                     samples that this step would have had, dropped by age         (C9)

`origin` answers {steps: [{step, executions, age, <STAGES>…}], slowest: [{sample, step, age, <STAGES>…}]}: means over a step's
executions of the versions that went by in each stage of their lives. Versions are counted by the clock of
updates, so the stages add up to the age exactly, up to facts told out of order.
"""

from collections import defaultdict
from dataclasses import replace
from typing import Any

import numpy as np
import sqlalchemy as sa

from services.ledger.explorer.answers.attempts import Attempt, details, in_parts
from services.ledger.explorer.answers.clock import PolicyClock, policy_clock
from services.ledger.explorer.scope import Scope
from services.ledger.queries.books import law_steps
from services.ledger.queries.sql import rows

STEPS_MAX = 2_000
"""Points of one curve."""
ORIGIN_STEPS = 60
ORIGIN_SAMPLES_MAX = 10_000
SLOWEST = 12

STAGES = ("queued", "starting", "generating", "tools", "evaluation", "batch", "trainer")
"""Dispatched and waiting for a lease; environment starting; model calls; between them; evaluation, tree and reward; waiting for a batch that is
complete; its update."""

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
_OF_STEPS = """
SELECT t.sample_id, t.step FROM step_samples t CROSS JOIN samples s {join}
WHERE s.run = t.run AND s.sample_id = t.sample_id AND t.run = :run AND t.step >= :first AND t.step <= :last {narrow}
ORDER BY t.step DESC, t.sample_id LIMIT :limit
"""
_CALLS = "SELECT sample_id, started_at_s, at_s FROM calls WHERE run = :run AND sample_id IN :ids"


def _narrow(scope: Scope, query: str) -> tuple[str, dict[str, Any]]:
    """The query for the scope's tenant and type of task, and its bound values."""
    wanted = {name: value for name in ("tenant", "task_type") if (value := getattr(scope, name))}
    join = "JOIN groups g ON g.run = s.run AND g.group_id = s.group_id" if wanted else ""
    narrow = "".join(f"AND g.{name} = :{name} " for name in wanted)
    return query.format(join=join, narrow=narrow), {"run": scope.run, **wanted}


def _range(connection: sa.Connection, scope: Scope, width: int) -> dict[str, int]:
    """The steps that are shown: the scope's one, else the last `width`."""
    if scope.step is not None:
        return {"first": scope.step, "last": scope.step}
    last = rows(connection, _LAST, run=scope.run)[0]["step"]
    last = -1 if last is None else last
    return {"first": max(0, last - width + 1), "last": last}


def age(connection: sa.Connection, scope: Scope) -> dict[str, Any]:
    """The answer whose shape the module's docstring gives."""
    # also what was dropped before a batch that is still open
    bounds = _range(connection, replace(scope, step=None), STEPS_MAX) | {"last": 2**31}
    query, values = _narrow(scope, _BY_SAMPLE)
    by_step: dict[int, dict[str, Any]] = defaultdict(dict)
    for row in rows(connection, query, **values, **bounds):
        by_step[row["step"]].update(row)
    query, values = _narrow(scope, _DROPPED)
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
        "law": law_steps(scope.config), "cap": scope.config.trajproc.age_steps_max, "version": policy_clock(connection, scope.run).newest,
        "steps": [
            {"step": step, "executions": found.get("executions", 0), "dropped": found.get("dropped", 0), **{name: found.get(name) for name in names}}
            for step, found in sorted(by_step.items())
        ],
    }  # fmt: skip


def origin(connection: sa.Connection, scope: Scope) -> dict[str, Any]:
    """The answer whose shape the module's docstring gives."""
    clock = policy_clock(connection, scope.run)
    bounds = _range(connection, scope, ORIGIN_STEPS)
    query, values = _narrow(scope, _OF_STEPS)
    ids = [row["sample_id"] for row in rows(connection, query, **values, **bounds, limit=ORIGIN_SAMPLES_MAX)]
    attempts = details(connection, scope, ids)
    calls = _calls(connection, scope.run, ids)
    table = np.array([_stages(attempt, calls[attempt.sample_id], clock) for attempt in attempts]).reshape(
        len(attempts), len(STAGES)
    )
    ages = np.array([(attempt.step or 0) - (attempt.dispatched or 0) for attempt in attempts])
    steps = np.array([attempt.step or 0 for attempt in attempts])
    order = np.lexsort((np.arange(len(ages)), -ages))[:SLOWEST]
    return {
        "stages": list(STAGES),
        "steps": [
            {"step": int(step), "executions": int((steps == step).sum()), "age": float(ages[steps == step].mean()),
             **dict(zip(STAGES, table[steps == step].mean(axis=0).round(4).tolist(), strict=True))}
            for step in np.unique(steps)
        ],
        "slowest": [
            {"sample": attempts[index].sample_id, "step": int(steps[index]), "age": int(ages[index]),
             **dict(zip(STAGES, table[index].astype(int).tolist(), strict=True))}
            for index in order
        ],
    }  # fmt: skip


def _calls(connection: sa.Connection, run: str, ids: list[str]) -> dict[str, list[tuple[float, float]]]:
    query = sa.text(_CALLS).bindparams(sa.bindparam("ids", expanding=True))
    found: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for some in in_parts(ids):
        for sample, started, at in connection.execute(query, {"run": run, "ids": some}).all():
            if at is not None:
                found[sample].append((min(started or at, at), at))
    return found


def _stages(attempt: Attempt, calls: list[tuple[float, float]], clock: PolicyClock) -> np.ndarray:
    """int64[7]: versions that went by in each of STAGES. Marks that are missing or out of order are taken as the one before."""
    calls = sorted(calls)
    first = calls[0][0] if calls else None
    last = max(at for _, at in calls) if calls else None
    marks = [
        attempt.dispatched_at_s,
        attempt.leased_at_s,
        first,
        last,
        attempt.ready_at_s,
        attempt.closed_at_s,
        attempt.trained_at_s,
    ]
    times = np.maximum.accumulate([-np.inf if mark is None else mark for mark in marks])
    versions = clock.at(times)
    # the clock told at dispatch, and the update that trained it is not part of its age
    versions[0] = attempt.dispatched or 0
    versions = np.maximum.accumulate(np.minimum(versions, attempt.step if attempt.step is not None else versions[-1]))
    queued, starting, active, evaluation, batch, trainer = np.diff(versions)
    generating = _inside(calls, clock, versions[2], versions[3])
    return np.array([queued, starting, generating, active - generating, evaluation, batch, trainer])


def _inside(calls: list[tuple[float, float]], clock: PolicyClock, low: int, high: int) -> int:
    """Versions that went by while a call was being sampled, calls at once counted once."""
    if not calls:
        return 0
    begins = np.array([begin for begin, _ in calls])
    ends = np.maximum.accumulate([end for _, end in calls])
    begins[1:] = np.maximum(begins[1:], ends[:-1])
    passed = np.clip(clock.at(ends), low, high) - np.clip(clock.at(begins), low, high)
    return int(np.maximum(passed, 0).sum())

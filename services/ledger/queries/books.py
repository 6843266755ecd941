"""The three books and the counters of a run (C6).

`books` answers:

    run, fingerprint, policy_version, steps, alarms {kind: n}
    books       turns, occupancy_s, external_calls, quota_left, tokens_sampled, by_purpose {purpose: {turns, ...}}
    training    tokens_trained (target tokens in gradients), compute_s        both with replays of the elite store
    panel       truncated_share, promotions, queue_wait_mean_s, queue_wait_max_s
    executions  dispatched, trained, dropped, in_flight, dropped_by_reason {reason: n}, evaluation {dispatched, ended}
    elite       {replays, samples, steps}       trained again beside a batch, of which nothing above knows (D9)
    staleness   law, mean, max, executions, by_step [{step, mean, max, executions}]
    role_changes  count, mid_batch_joins, training / rollout: {count, total_median_s, phases_median_s,
                median_change {cell, change, total_s, phases}}
    evaluation  [{policy_version, executions, scored, success, stderr}]
    reward_by_step  [{step, reward, success, samples, turns_mean, truncated_share}]
"""

import math
from collections import defaultdict
from itertools import pairwise
from statistics import median, median_low
from typing import Any

import sqlalchemy as sa

from gyre.config import Config
from gyre.records import CELL_PHASES
from services.ledger.queries.sql import CALL_COUNTS, CONSUMED, FATES, GROUP_VERSION, LAST_ENDING, number, one, rows

TURNS = f"""
SELECT purpose, sum(records) AS turns, sum(tokens) AS tokens_sampled FROM ({CALL_COUNTS}) c GROUP BY purpose
"""

OCCUPANCY = """
SELECT purpose, sum(occupancy_s) AS occupancy_s, sum(external_calls) AS external_calls,
       min(CASE WHEN quota_left >= 0 THEN quota_left END) AS quota_left, sum(rollback_turns) AS rollback_turns
FROM attempts WHERE run = :run AND ended_at_s IS NOT NULL GROUP BY purpose
"""

STATES = f"""
SELECT count(*) AS dispatched, count(CASE WHEN trained > 0 THEN 1 END) AS trained, count(dropped) AS dropped,
       count(CASE WHEN trained = 0 AND dropped IS NULL THEN 1 END) AS in_flight
FROM ({FATES}) f WHERE run = :run AND purpose = 'train'
"""

REASONS = f"""
SELECT dropped AS reason, count(*) AS executions FROM ({FATES}) f
WHERE run = :run AND purpose = 'train' AND dropped IS NOT NULL GROUP BY dropped ORDER BY dropped
"""

EVALUATION_COUNTS = f"""
SELECT count(*) AS dispatched, count(x.execution_id) AS ended FROM executions e
LEFT JOIN ({LAST_ENDING}) x ON x.run = e.run AND x.execution_id = e.execution_id
WHERE e.run = :run AND e.purpose = 'evaluation'
"""

ELITE = """
SELECT count(*) AS replays, count(DISTINCT sample_id) AS samples, count(DISTINCT step) AS steps FROM elite_replays WHERE run = :run
"""

STALENESS = f"""
SELECT c.step, avg(c.step - v.policy_version) AS mean, max(c.step - v.policy_version) AS max, count(*) AS executions,
       sum(c.step - v.policy_version) AS sum
FROM ({CONSUMED}) c
JOIN ({GROUP_VERSION}) v ON v.run = c.run AND v.group_id = c.group_id
JOIN executions e ON e.run = c.run AND e.group_id = c.group_id
WHERE c.run = :run GROUP BY c.step ORDER BY c.step
"""

TRAINING = "SELECT sum(targets) AS tokens_trained, sum(compute_s) AS compute_s FROM steps WHERE run = :run"

STEPS = "SELECT count(*) AS steps, max(version) AS version FROM steps WHERE run = :run AND updated_at_s IS NOT NULL"

FINGERPRINT = "SELECT fingerprint FROM runs WHERE run = :run ORDER BY at_s DESC LIMIT 1"

WAITS = """
SELECT sum(promotions) AS promotions, avg(queue_wait_s) AS queue_wait_mean_s, max(queue_wait_s) AS queue_wait_max_s
FROM dispatches WHERE run = :run
"""

TRUNCATED = f"""
SELECT avg(CASE WHEN ending = 'timed_out' THEN 1.0 ELSE 0.0 END) AS share FROM ({LAST_ENDING}) x
WHERE run = :run AND purpose = 'train'
"""

ROLE_PHASES = """
SELECT cell, change, target, phase, at_s FROM role_changes WHERE run = :run AND change > 0 ORDER BY cell, change, at_s
"""

JOINS = "SELECT count(*) AS joins FROM joins WHERE run = :run AND mid_batch"

EVALUATION = f"""
SELECT policy_version, count(*) AS executions, count(outcome) AS scored,
       avg(CASE WHEN outcome >= 1 THEN 1.0 WHEN outcome IS NOT NULL THEN 0.0 END) AS success
FROM ({LAST_ENDING}) x WHERE run = :run AND purpose = 'evaluation'
GROUP BY policy_version ORDER BY policy_version
"""

REWARDS = f"""
SELECT c.step, avg(s.reward) AS reward,
       avg(CASE WHEN x.outcome >= 1 THEN 1.0 WHEN x.outcome IS NOT NULL THEN 0.0 END) AS success,
       count(s.sample_id) AS samples, avg(x.turns) AS turns_mean,
       avg(CASE WHEN x.ending = 'timed_out' THEN 1.0 ELSE 0.0 END) AS truncated_share
FROM ({CONSUMED}) c
JOIN executions e ON e.run = c.run AND e.group_id = c.group_id
JOIN attempts x ON x.run = e.run AND x.execution_id = e.execution_id AND x.ended_at_s IS NOT NULL AND x.attempt =
     (SELECT max(y.attempt) FROM attempts y
      WHERE y.run = e.run AND y.execution_id = e.execution_id AND y.ended_at_s IS NOT NULL)
LEFT JOIN samples s ON s.run = x.run AND s.sample_id = x.sample_id
WHERE c.run = :run GROUP BY c.step ORDER BY c.step
"""
"""Over every execution of the groups that a step used up; each join follows an index."""

ALARMS = "SELECT kind, count(*) AS n FROM alarms WHERE run = :run GROUP BY kind ORDER BY kind"


def books(connection: sa.Connection, run: str, config: Config) -> dict[str, Any]:
    """The answer whose shape the module's docstring gives. Durations in seconds, versions and ages in optimizer steps."""
    steps = one(connection, STEPS, run=run)
    waits = one(connection, WAITS, run=run)
    return {
        "run": run,
        "fingerprint": one(connection, FINGERPRINT, run=run).get("fingerprint", ""),
        "policy_version": number(steps["version"]),
        "steps": number(steps["steps"]),
        "books": _three_books(connection, run),
        "training": {name: number(value) for name, value in one(connection, TRAINING, run=run).items()},
        "panel": {
            "truncated_share": number(one(connection, TRUNCATED, run=run)["share"]),
            "promotions": number(waits["promotions"]),
            "queue_wait_mean_s": number(waits["queue_wait_mean_s"]),
            "queue_wait_max_s": number(waits["queue_wait_max_s"]),
        },
        "executions": executions(connection, run),
        "elite": one(connection, ELITE, run=run),
        "staleness": staleness(connection, run, config),
        "role_changes": _role_changes(connection, run),
        "evaluation": [_with_stderr(row) for row in rows(connection, EVALUATION, run=run)],
        "reward_by_step": rows(connection, REWARDS, run=run),
        "alarms": {row["kind"]: row["n"] for row in rows(connection, ALARMS, run=run)},
    }


def _three_books(connection: sa.Connection, run: str) -> dict[str, Any]:
    empty = {"turns": 0, "tokens_sampled": 0, "occupancy_s": 0.0, "external_calls": 0}
    purposes: dict[str, dict[str, Any]] = defaultdict(lambda: dict(empty))
    for row in rows(connection, TURNS, run=run):
        purposes[row["purpose"]].update(turns=number(row["turns"]), tokens_sampled=number(row["tokens_sampled"]))
    left = []
    for row in rows(connection, OCCUPANCY, run=run):
        purposes[row["purpose"]].update(
            occupancy_s=float(number(row["occupancy_s"])), external_calls=number(row["external_calls"])
        )
        left += [row["quota_left"]] if row["quota_left"] is not None else []
    total = {name: sum(row[name] for row in purposes.values()) for name in empty}
    return {**total, "quota_left": min(left) if left else None, "by_purpose": dict(purposes)}


def executions(connection: sa.Connection, run: str) -> dict[str, Any]:
    """Where each dispatched training execution is. One that is both trained and dropped counts as both; `audit` says so."""
    reasons = rows(connection, REASONS, run=run)
    return {
        **one(connection, STATES, run=run),
        "dropped_by_reason": {row["reason"]: row["executions"] for row in reasons},
        "evaluation": one(connection, EVALUATION_COUNTS, run=run),
    }


def law_steps(config: Config) -> float:
    """Mean staleness under boundary dispatch, φ + (μ − 1)/2 (A5)."""
    return config.scheduler.extra_depth_steps + (config.scheduler.steps_per_publish - 1) / 2


def staleness(connection: sa.Connection, run: str, config: Config) -> dict[str, Any]:
    """Over all executions that batches used up: step − v_d."""
    by_step = rows(connection, STALENESS, run=run)
    count = sum(row["executions"] for row in by_step)
    total = sum(row.pop("sum") for row in by_step)
    return {
        "law": law_steps(config),
        "mean": total / count if count else 0.0,
        "max": max((row["max"] for row in by_step), default=0),
        "executions": count,
        "by_step": by_step,
    }


def _role_changes(connection: sa.Connection, run: str) -> dict[str, Any]:
    changes: dict[tuple[str, int, str], dict[str, float]] = defaultdict(dict)
    for row in rows(connection, ROLE_PHASES, run=run):
        changes[row["cell"], row["change"], row["target"]][row["phase"]] = row["at_s"]
    answer: dict[str, Any] = {"count": 0, "mid_batch_joins": one(connection, JOINS, run=run)["joins"]}
    for target, phases in CELL_PHASES.items():
        whole = [
            {"cell": cell, "change": change, "total_s": at_s[phases[-1]] - at_s[phases[0]],
             "phases": {later: at_s[later] - at_s[earlier] for earlier, later in pairwise(phases)}}
            for (cell, change, to), at_s in changes.items() if to == target and set(phases) <= set(at_s)
        ]  # fmt: skip
        answer[target] = _summary(whole)
        answer["count"] += len(whole)
    return answer


def _summary(whole: list[dict[str, Any]]) -> dict[str, Any]:
    """Medians over finished changes, and the median change itself, whose phases sum to its total."""
    if not whole:
        return {"count": 0, "total_median_s": 0.0, "phases_median_s": {}, "median_change": None}
    middle = median_low([change["total_s"] for change in whole])
    return {
        "count": len(whole),
        "total_median_s": median(change["total_s"] for change in whole),
        "phases_median_s": {name: median(change["phases"][name] for change in whole) for name in whole[0]["phases"]},
        "median_change": next(change for change in whole if change["total_s"] == middle),
    }


def _with_stderr(row: dict[str, Any]) -> dict[str, Any]:
    """Standard error √(s(1−s)/n) of a success share."""
    success, scored = float(number(row["success"])), row["scored"]
    return {**row, "success": success, "stderr": math.sqrt(success * (1 - success) / scored) if scored else None}

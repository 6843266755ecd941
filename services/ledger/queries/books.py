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

from collections import defaultdict
from itertools import pairwise
from statistics import median, median_low
from typing import Any

import sqlalchemy as sa

from gyre.config import Config
from gyre.records import CELL_PHASES
from services.ledger.queries.sql import number, one, rows
from services.ledger.queries.standing import by_step, evaluation, executions, reward_by_step, staleness

TOTALS = "SELECT purpose, turns, tokens, external_calls, occupancy_s FROM book_totals WHERE run = :run ORDER BY purpose"

QUOTA_LEFT = "SELECT min(quota_left) AS quota_left FROM attempts WHERE run = :run AND quota_left >= 0"

ELITE = """
SELECT count(*) AS replays, count(DISTINCT sample_id) AS samples, count(DISTINCT step) AS steps FROM elite_replays WHERE run = :run
"""

TRAINING = "SELECT sum(targets) AS tokens_trained, sum(compute_s) AS compute_s FROM steps WHERE run = :run"

STEPS = "SELECT count(*) AS steps, max(version) AS version FROM steps WHERE run = :run AND updated_at_s IS NOT NULL"

FINGERPRINT = "SELECT fingerprint FROM runs WHERE run = :run ORDER BY at_s DESC LIMIT 1"

WAITS = """
SELECT sum(promotions) AS promotions, avg(queue_wait_s) AS queue_wait_mean_s, max(queue_wait_s) AS queue_wait_max_s
FROM dispatches WHERE run = :run
"""

ROLE_PHASES = """
SELECT cell, change, target, phase, at_s FROM role_changes WHERE run = :run AND change > 0 ORDER BY cell, change, at_s
"""

JOINS = "SELECT count(*) AS joins FROM joins WHERE run = :run AND mid_batch"

ALARMS = "SELECT kind, count(*) AS n FROM alarms WHERE run = :run GROUP BY kind ORDER BY kind"


def books(connection: sa.Connection, run: str, config: Config) -> dict[str, Any]:
    """The answer whose shape the module's docstring gives. Durations in seconds, versions and ages in optimizer steps."""
    steps = one(connection, STEPS, run=run)
    waits = one(connection, WAITS, run=run)
    counts, used = executions(connection, run), by_step(connection, run)
    return {
        "run": run,
        "fingerprint": one(connection, FINGERPRINT, run=run).get("fingerprint", ""),
        "policy_version": number(steps["version"]),
        "steps": number(steps["steps"]),
        "books": _three_books(connection, run),
        "training": {name: number(value) for name, value in one(connection, TRAINING, run=run).items()},
        "panel": {
            "truncated_share": counts.pop("truncated_share"),
            "promotions": number(waits["promotions"]),
            "queue_wait_mean_s": number(waits["queue_wait_mean_s"]),
            "queue_wait_max_s": number(waits["queue_wait_max_s"]),
        },
        "executions": counts,
        "elite": one(connection, ELITE, run=run),
        "staleness": staleness(used, config),
        "role_changes": _role_changes(connection, run),
        "evaluation": evaluation(connection, run),
        "reward_by_step": reward_by_step(used),
        "alarms": {row["kind"]: row["n"] for row in rows(connection, ALARMS, run=run)},
    }


def _three_books(connection: sa.Connection, run: str) -> dict[str, Any]:
    purposes = {
        row["purpose"]: {
            "turns": number(row["turns"]), "tokens_sampled": number(row["tokens"]), "occupancy_s": float(number(row["occupancy_s"])),
            "external_calls": number(row["external_calls"]),
        }
        for row in rows(connection, TOTALS, run=run)
    }  # fmt: skip
    names = ("turns", "tokens_sampled", "occupancy_s", "external_calls")
    total = {name: sum(row[name] for row in purposes.values()) for name in names}
    return {**total, "quota_left": one(connection, QUOTA_LEFT, run=run)["quota_left"], "by_purpose": purposes}


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

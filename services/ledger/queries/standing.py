"""How a run's executions and steps stand: sums over lines of groups that have settled and the facts of those that have not (core/book_lines.py).

`executions`     dispatched, trained, dropped, in_flight, dropped_by_reason {reason: n}, evaluation {dispatched, ended}; `truncated_share`
`staleness`      law, mean, max, executions, by_step [{step, mean, max, executions}]
`reward_by_step` [{step, reward, success, samples, turns_mean, truncated_share}]
`evaluation`     [{policy_version, executions, scored, success, stderr}]
"""

import math
from typing import Any

import sqlalchemy as sa

from gyre.config import Config
from gyre.config.staleness import law_steps
from services.ledger.core.bill_lines import UNSETTLED
from services.ledger.core.book_lines import FATE_COLUMNS, STEP_COLUMNS, fates, used
from services.ledger.queries.sql import rows

FATES = f"SELECT {', '.join(FATE_COLUMNS)} FROM fate_lines WHERE run = :run UNION ALL {fates(UNSETTLED)}"
"""Lines of every group: what became of its executions."""
_USED = f"SELECT {', '.join(STEP_COLUMNS)} FROM step_lines WHERE run = :run UNION ALL {used(UNSETTLED)}"

STATES = f"""
SELECT purpose, dispatched, trained, dropped, sum(executions) AS executions, sum(ended) AS ended, sum(timed_out) AS timed_out
FROM ({FATES}) f GROUP BY purpose, dispatched, trained, dropped ORDER BY dropped
"""

EVALUATION = f"""
SELECT version AS policy_version, sum(ended) AS executions, sum(scored) AS scored, sum(succeeded) AS succeeded
FROM ({FATES}) f WHERE purpose = 'evaluation' AND ended > 0 GROUP BY version ORDER BY version
"""

STEPS = f"""
SELECT step, sum(executions) AS executions, sum(age_sum) AS age_sum, max(age_max) AS age_max, sum(ended) AS ended,
       sum(timed_out) AS timed_out, sum(turns) AS turns, sum(scored) AS scored, sum(succeeded) AS succeeded, sum(samples) AS samples,
       sum(rewarded) AS rewarded, sum(reward_sum) AS reward_sum
FROM ({_USED}) u GROUP BY step ORDER BY step
"""


def executions(connection: sa.Connection, run: str) -> dict[str, Any]:
    """Where each dispatched training execution is. One that is both trained and dropped counts as both; `audit` says so. `truncated_share` is
    of all training executions that have ended."""
    found = rows(connection, STATES, run=run)
    train = [row for row in found if row["purpose"] == "train" and row["dispatched"]]
    evaluated = [row for row in found if row["purpose"] == "evaluation" and row["dispatched"]]
    ended = [row for row in found if row["purpose"] == "train"]
    reasons: dict[str, int] = {}
    for row in train:
        if row["dropped"]:
            reasons[row["dropped"]] = reasons.get(row["dropped"], 0) + row["executions"]
    return {
        "dispatched": _sum(train, "executions"),
        "trained": sum(row["executions"] for row in train if row["trained"]),
        "dropped": sum(reasons.values()),
        "in_flight": sum(row["executions"] for row in train if not row["trained"] and not row["dropped"]),
        "dropped_by_reason": reasons,
        "evaluation": {"dispatched": _sum(evaluated, "executions"), "ended": _sum(evaluated, "ended")},
        "truncated_share": _sum(ended, "timed_out") / _sum(ended, "ended") if _sum(ended, "ended") else 0.0,
    }


def _sum(found: list[dict[str, Any]], name: str) -> int:
    return sum(row[name] for row in found)


def by_step(connection: sa.Connection, run: str) -> list[dict[str, Any]]:
    """Sums of each step that used groups up, for `staleness` and `reward_by_step`."""
    return rows(connection, STEPS, run=run)


def staleness(steps: list[dict[str, Any]], config: Config) -> dict[str, Any]:
    """Over all executions that batches used up, trained or not, of groups whose v_d is known: step − v_d."""
    steps = [row for row in steps if row["age_max"] is not None]
    count = _sum(steps, "executions")
    return {
        "law": law_steps(config.scheduler),
        "mean": _sum(steps, "age_sum") / count if count else 0.0,
        "max": max((row["age_max"] for row in steps), default=0),
        "executions": count,
        "by_step": [
            {"step": row["step"], "mean": row["age_sum"] / row["executions"], "max": row["age_max"], "executions": row["executions"]}
            for row in steps
        ],
    }  # fmt: skip


def reward_by_step(steps: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Means over the executions that ended of those that each step used up; None over nothing."""
    return [
        {
            "step": row["step"], "reward": _mean(row["reward_sum"], row["rewarded"]), "success": _mean(row["succeeded"], row["scored"]),
            "samples": row["samples"], "turns_mean": _mean(row["turns"], row["ended"]), "truncated_share": _mean(row["timed_out"], row["ended"]),
        }
        for row in steps if row["ended"]
    ]  # fmt: skip


def _mean(total: float, count: int) -> float | None:
    return total / count if count else None


def evaluation(connection: sa.Connection, run: str) -> list[dict[str, Any]]:
    """By the version that evaluated; standard error √(s(1−s)/n) of the share of successes, None where nothing was scored."""
    found = []
    for row in rows(connection, EVALUATION, run=run):
        succeeded, scored = row.pop("succeeded"), row["scored"]
        success = succeeded / scored if scored else 0.0
        stderr = math.sqrt(success * (1 - success) / scored) if scored else None
        found.append({**row, "success": success, "stderr": stderr})
    return found

"""Drops by reason with what they cost, whether the long ones are dropped more (C9), and call records that were set aside.

`drops` answers:

    reasons  [{reason, meaning, samples, turns, tokens, occupancy_s, age_steps_mean, age_steps_max, waited_s_mean}]
    total    {samples, turns, tokens, occupancy_s}
    length   {dropped_turns_mean, kept_turns_mean, ratio}       kept: trained samples
    missing    {by_policy: [{policy, batches, executions, waited_s_mean}], truncated, dropped}
               what had not arrived when a batch's wait was over (C5); executions ended by `truncate`, dropped for the wait
    set_aside  {calls, tokens, reasons: [{reason, meaning, calls, executions, tokens}], examples: [{reason, call_id, detail}]}
    evaluators  [{evaluator, kind, asked, failed, partial, value_mean, tries_mean, took_s_mean, last_failure: {sample_id, detail}}]
               evaluators beside the environment: executions they were asked about, and could not be had for (B4)
    line     the settings that draw the line: age_steps_max, wait_s, missing, truncated_share_max, failed_share_max,
             failed_share_by_type
"""

from typing import Any

import sqlalchemy as sa

from gyre.config import Config
from gyre.records import DROP_REASONS, SET_ASIDE_REASONS
from services.ledger.queries.sql import number, one, rows

BY_REASON = """
SELECT reason, count(*) AS samples, sum(turns) AS turns, sum(tokens) AS tokens, sum(occupancy_s) AS occupancy_s,
       avg(age_steps) AS age_steps_mean, max(age_steps) AS age_steps_max, avg(waited_s) AS waited_s_mean
FROM drops WHERE run = :run GROUP BY reason ORDER BY count(*) DESC, reason
"""

DROPPED_TURNS = "SELECT avg(turns) AS mean FROM drops WHERE run = :run AND reason <> 'duplicate'"

KEPT_TURNS = """
SELECT avg(s.turns) AS mean FROM samples s JOIN step_samples t ON t.run = s.run AND t.sample_id = s.sample_id
WHERE s.run = :run
"""

MISSING = """
SELECT policy, count(DISTINCT step) AS batches, sum(executions) AS executions, avg(waited_s) AS waited_s_mean
FROM overdue WHERE run = :run GROUP BY policy ORDER BY policy
"""

TRUNCATED = "SELECT count(*) AS count FROM attempts WHERE run = :run AND ending = 'timed_out' AND reason = 'truncated'"

LATE = "SELECT count(*) AS count FROM drops WHERE run = :run AND reason = 'wait'"

SET_ASIDE = """
SELECT reason, count(*) AS calls, count(DISTINCT execution_id) AS executions, sum(tokens) AS tokens
FROM set_aside WHERE run = :run GROUP BY reason ORDER BY count(*) DESC, reason
"""

EXAMPLES = """
SELECT reason, call_id, detail FROM set_aside WHERE run = :run AND reason = :reason ORDER BY at_s, call_id LIMIT :most
"""
EXAMPLES_MAX = 3
"""Shown of each reason; `gyre explain` marks every one."""

EVALUATORS = """
SELECT evaluator, kind, count(*) AS asked, sum(CASE WHEN valid THEN 0 ELSE 1 END) AS failed,
       sum(CASE WHEN partial THEN 1 ELSE 0 END) AS partial, avg(value) AS value_mean, avg(tries) AS tries_mean,
       avg(took_s) AS took_s_mean
FROM scores WHERE run = :run GROUP BY evaluator, kind ORDER BY evaluator
"""

LAST_FAILURE = """
SELECT sample_id, detail FROM scores WHERE run = :run AND evaluator = :evaluator AND value IS NULL ORDER BY at_s DESC, sample_id LIMIT 1
"""


def drops(connection: sa.Connection, run: str, config: Config) -> dict[str, Any]:
    """The answer whose shape the module's docstring gives."""
    reasons = [_reason(row) for row in rows(connection, BY_REASON, run=run)]
    dropped = one(connection, DROPPED_TURNS, run=run)["mean"]
    kept = one(connection, KEPT_TURNS, run=run)["mean"]
    line = config.trajproc
    return {
        "reasons": reasons,
        "total": {name: sum(row[name] for row in reasons) for name in ("samples", "turns", "tokens", "occupancy_s")},
        "length": {
            "dropped_turns_mean": None if dropped is None else float(dropped),
            "kept_turns_mean": None if kept is None else float(kept),
            "ratio": float(dropped) / float(kept) if dropped is not None and kept else None,
        },
        "missing": {
            "by_policy": rows(connection, MISSING, run=run), "truncated": one(connection, TRUNCATED, run=run)["count"],
            "dropped": one(connection, LATE, run=run)["count"],
        },
        "set_aside": _set_aside(connection, run),
        "evaluators": [_evaluator(connection, run, row) for row in rows(connection, EVALUATORS, run=run)],
        "line": {
            "age_steps_max": line.age_steps_max, "wait_s": line.wait_s, "missing": line.missing, "truncated_share_max": line.truncated_share_max,
            "failed_share_max": line.failed_share_max, "failed_share_by_type": dict(line.failed_share_by_type),
        },
    }  # fmt: skip


def _reason(row: dict[str, Any]) -> dict[str, Any]:
    return {
        "reason": row["reason"], "meaning": DROP_REASONS.get(row["reason"], ""), "samples": row["samples"],
        "turns": number(row["turns"]), "tokens": number(row["tokens"]),
        "occupancy_s": float(number(row["occupancy_s"])), "age_steps_mean": float(number(row["age_steps_mean"])),
        "age_steps_max": number(row["age_steps_max"]), "waited_s_mean": float(number(row["waited_s_mean"])),
    }  # fmt: skip


def _evaluator(connection: sa.Connection, run: str, row: dict[str, Any]) -> dict[str, Any]:
    failure = one(connection, LAST_FAILURE, run=run, evaluator=row["evaluator"])
    means = {
        name: None if row[name] is None else float(row[name]) for name in ("value_mean", "tries_mean", "took_s_mean")
    }
    counts = {name: int(row[name]) for name in ("asked", "failed", "partial")}
    return {"evaluator": row["evaluator"], "kind": row["kind"], **counts, **means, "last_failure": failure or None}


def _set_aside(connection: sa.Connection, run: str) -> dict[str, Any]:
    found = rows(connection, SET_ASIDE, run=run)
    reasons = [
        {
            "reason": row["reason"], "meaning": SET_ASIDE_REASONS.get(row["reason"], ""), "calls": row["calls"],
            "executions": row["executions"], "tokens": number(row["tokens"]),
        }
        for row in found
    ]  # fmt: skip
    examples = [
        one for row in found for one in rows(connection, EXAMPLES, run=run, reason=row["reason"], most=EXAMPLES_MAX)
    ]
    totals = {name: sum(row[name] for row in reasons) for name in ("calls", "tokens")}
    return {**totals, "reasons": reasons, "examples": examples}

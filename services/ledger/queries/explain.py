"""Everything about one sample on one page (C11, evidence).

`explain` answers:

    sample_id, state (in_flight, ready, trained, dropped), task, group, execution, attempt
    attempts    every attempt of the execution, oldest first
    commands    what was commanded of the execution, in order (C2)
    evidence    image_digest, seed, tool_versions, dependency_snapshot                      (reproducibility four)
    versions    min, mean, max, dispatched, fingerprint                                     (C7)
    queue       tier, wait_s, promotions
    calls       {count, tokens_sampled, prompt_tokens_max, delivered, wait_s, by_role}, and `call_list`, one row each, `set_aside` its reason
    tree        tokens_tree, tokens_flat, targets_chosen, targets_sampled, paths
    rewards     total, components, success, truncated, advantage, outcome, milestones
    credit      segments, kappa, segment_starts (call index), segment_advantages, milestone_turns                                   (D3)
    scores      what each evaluator beside the environment said: evaluator, kind, value, valid, partial, evidence, looked_at, tries (D4)
    training    step, version, batch_turns, divisor, staleness_steps, metrics               (null when not trained)
    drop        reason, meaning, detail, step, age_steps, waited_s                          (null when not dropped)
    timeline    stages of its life by facts [{stage, start_at_s, duration_s}]
    trace       trace_id, stages, total_s, unaccounted_s, spans (count)
"""

from collections import defaultdict
from typing import Any

import sqlalchemy as sa

from gyre.errors import NotFound
from gyre.ids import split_sample_id
from gyre.records import DROP_REASONS
from services.ledger.queries.sql import number, one, rows, unpacked
from services.ledger.queries.trace import spans, stages

ATTEMPTS = "SELECT * FROM attempts WHERE run = :run AND execution_id = :execution ORDER BY attempt"

COMMANDS = "SELECT * FROM commands WHERE run = :run AND execution_id = :execution ORDER BY ordinal"

GROUP = "SELECT * FROM groups WHERE run = :run AND group_id = :group"

DISPATCH = "SELECT * FROM dispatches WHERE run = :run AND group_id = :group ORDER BY attempt_base"

SAMPLE = "SELECT * FROM samples WHERE run = :run AND sample_id = :sample"

DROP = "SELECT * FROM drops WHERE run = :run AND sample_id = :sample"

CALLS = """
SELECT c.*, a.reason AS set_aside FROM calls c LEFT JOIN set_aside a ON a.run = c.run AND a.call_id = c.call_id
WHERE c.run = :run AND c.sample_id = :sample ORDER BY c.call_index, c.call_id
"""

SCORES = "SELECT * FROM scores WHERE run = :run AND sample_id = :sample ORDER BY at_s, evaluator"

TRAINING = """
SELECT t.step, u.version, t.metrics_json, u.metrics_json AS step_metrics_json, u.updated_at_s, b.turns AS batch_turns,
       b.divisor, b.at_s AS closed_at_s
FROM step_samples t
LEFT JOIN steps u ON u.run = t.run AND u.step = t.step
LEFT JOIN batches b ON b.run = t.run AND b.step = t.step
WHERE t.run = :run AND t.sample_id = :sample ORDER BY +t.step
"""
"""The plus keeps SQLite from reading the run's whole table in the order of its key, to be spared the sorting of one row."""

FINGERPRINT = "SELECT fingerprint FROM runs WHERE run = :run ORDER BY at_s DESC LIMIT 1"

NEAR = """
SELECT sample_id FROM attempts WHERE run = :run AND (execution_id = :execution OR group_id = :group)
ORDER BY execution_id, attempt LIMIT 5
"""

ANY = "SELECT sample_id FROM attempts WHERE run = :run ORDER BY execution_id, attempt LIMIT 3"


def explain(connection: sa.Connection, run: str, sample_id: str) -> dict[str, Any]:
    """The answer whose shape the module's docstring gives. Raises NotFound, naming samples that are near."""
    try:
        execution, attempt = split_sample_id(sample_id)
    except ValueError:
        execution, attempt = sample_id, -1
    attempts = [unpacked(row) for row in rows(connection, ATTEMPTS, run=run, execution=execution)]
    sample = unpacked(one(connection, SAMPLE, run=run, sample=sample_id))
    drop = one(connection, DROP, run=run, sample=sample_id)
    own: dict[str, Any] = next((row for row in attempts if row["attempt"] == attempt), {})
    if not own and not sample and not drop:
        raise NotFound(_not_found(connection, run, sample_id, execution))
    group = own.get("group_id") or (sample or drop)["group_id"]
    dispatch = _of_attempt(rows(connection, DISPATCH, run=run, group=group), attempt)
    calls = [unpacked(row) for row in rows(connection, CALLS, run=run, sample=sample_id)]
    training = unpacked(one(connection, TRAINING, run=run, sample=sample_id))
    task = unpacked(one(connection, GROUP, run=run, group=group))
    fingerprint = dispatch.get("fingerprint") or one(connection, FINGERPRINT, run=run).get("fingerprint", "")
    trace_id = own.get("trace_id") or sample.get("trace_id") or drop.get("trace_id") or ""
    found = spans(connection, run, trace_id) if trace_id else []
    return {
        "sample_id": sample_id, "execution": execution, "attempt": attempt, "group": group,
        "state": "trained" if training else "dropped" if drop else "ready" if sample else "in_flight",
        "task": _but(task, "run", "at_s", "group_id"),
        "attempts": [_but(row, "run", "group_id") for row in attempts],
        "commands": [
            _but(row, "run", "group_id", "execution_id") for row in rows(connection, COMMANDS, run=run, execution=execution)
        ],
        "evidence": {name: own.get(name) for name in ("image_digest", "seed", "tool_versions", "dependency_snapshot")},
        "versions": _versions(sample, calls, dispatch, own, fingerprint),
        "queue": {"tier": dispatch.get("tier"), "wait_s": dispatch.get("queue_wait_s"), "promotions": dispatch.get("promotions")},
        "calls": _calls(calls), "call_list": [_but(row, "run", "execution_id", "group_id", "sample_id") for row in calls],
        "tree": _only(sample, "tokens_tree", "tokens_flat", "targets_chosen", "targets_sampled", "paths"),
        "rewards": _rewards(sample, own),
        "credit": _credit(sample, own),
        "scores": [
            _but(unpacked(row), "run", "sample_id", "execution_id", "group_id", "attempt", "task_type", "trace_id")
            for row in rows(connection, SCORES, run=run, sample=sample_id)
        ],
        "training": _training(training, sample) if training else None,
        "drop": {**_but(drop, "run", "sample_id"), "meaning": DROP_REASONS.get(drop["reason"], "")} if drop else None,
        "timeline": _timeline(task, dispatch, own, sample, training),
        "trace": {"trace_id": trace_id, "spans": len(found), **stages(found)},
    }  # fmt: skip


def _not_found(connection: sa.Connection, run: str, sample_id: str, execution: str) -> str:
    near = rows(connection, NEAR, run=run, execution=execution, group=execution.rpartition("-e")[0] or execution)
    near = near or rows(connection, ANY, run=run)
    names = ", ".join(row["sample_id"] for row in near)
    return f"no sample {sample_id} in run {run}" + (
        f"; near it: {names}" if names else "; the ledger holds no attempts yet"
    )


def _of_attempt(dispatches: list[dict[str, Any]], attempt: int) -> dict[str, Any]:
    """The dispatch an attempt belongs to: the newest with attempt_base below it."""
    fitting = [row for row in dispatches if row["attempt_base"] < attempt] or dispatches[:1]
    return fitting[-1] if fitting else {}


def _versions(sample, calls, dispatch, attempt, fingerprint: str) -> dict[str, Any]:
    answer = {name: sample.get(f"version_{name}") for name in ("min", "mean", "max")}
    known = [call for call in calls if call["version_min"] is not None]
    tokens = sum(call["output_tokens"] for call in known)
    if not sample and tokens:
        answer = {
            "min": min(call["version_min"] for call in known),
            "mean": sum(call["version_mean"] * call["output_tokens"] for call in known) / tokens,
            "max": max(call["version_max"] for call in known),
        }
    dispatched = sample.get("policy_version", dispatch.get("policy_version", attempt.get("policy_version")))
    return {**answer, "dispatched": dispatched, "fingerprint": fingerprint}


def _calls(calls: list[dict[str, Any]]) -> dict[str, Any]:
    roles: dict[str, int] = defaultdict(int)
    for call in calls:
        roles[call["role"]] += 1
    return {
        "count": len(calls),
        "tokens_sampled": sum(call["output_tokens"] for call in calls),
        "prompt_tokens_max": max((call["prompt_tokens"] for call in calls), default=0),
        "delivered": sum(bool(call["delivered"]) for call in calls),
        "wait_s": sum(number(call["wait_s"]) for call in calls),
        "by_role": dict(roles),
    }


def _rewards(sample: dict[str, Any], attempt: dict[str, Any]) -> dict[str, Any]:
    return {
        "total": sample.get("reward"), "components": sample.get("rewards") or {}, "success": sample.get("success"),
        "truncated": sample.get("truncated"), "advantage": sample.get("advantage"),
        "outcome": attempt.get("outcome"), "milestones": attempt.get("milestones") or {},
    }  # fmt: skip


def _credit(sample: dict[str, Any], attempt: dict[str, Any]) -> dict[str, Any]:
    names = ("segments", "kappa", "segment_starts", "segment_advantages")
    return {**{name: sample.get(name) for name in names}, "milestone_turns": attempt.get("milestone_turns") or {}}


def _training(training: dict[str, Any], sample: dict[str, Any]) -> dict[str, Any]:
    version = sample.get("policy_version")
    return {
        **_only(training, "step", "version", "batch_turns", "divisor", "metrics", "step_metrics"),
        "staleness_steps": None if version is None else training["step"] - version,
    }


def _timeline(task, dispatch, attempt, sample, training) -> list[dict[str, Any]]:
    """Each stage runs from its own fact to the next one that is known."""
    marks = [
        ("queued", task.get("at_s")), ("dispatched", dispatch.get("at_s")), ("starting", attempt.get("leased_at_s")),
        ("running", attempt.get("started_at_s")), ("tree", attempt.get("ended_at_s")),
        ("waiting for batch", sample.get("at_s")), ("waiting for update", training.get("closed_at_s")),
        ("trained", training.get("updated_at_s")),
    ]  # fmt: skip
    known = [(stage, at_s) for stage, at_s in marks if at_s is not None]
    ends = [at_s for _, at_s in known[1:]] + [None]
    return [
        {"stage": stage, "start_at_s": at_s, "duration_s": None if end is None else end - at_s}
        for (stage, at_s), end in zip(known, ends, strict=True)
    ]


def _only(row: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: row.get(name) for name in names}


def _but(row: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in names}

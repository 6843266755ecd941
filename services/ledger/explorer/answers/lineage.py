"""Lineage both ways: versions → groups → samples → steps, and back.

The scope's filters choose samples (a step's, a version's, a group's, one); where nothing is chosen the newest trained step is. `lineage` answers

    step      that was chosen for want of a filter, else null
    versions  [{version, at_s, groups, samples, tokens}]    at_s: published; groups dispatched at it, samples and tokens that it sampled
    groups    [{group, task_type, dispatched, executions, trained, dropped}]
    samples   [{sample, group, state, step, versions: [[version, tokens]…], advantage}]
    steps     [{step, version, samples, targets, at_s, loss}]        `version` is the one it made; the figures of all tenants are null for one
    matched, cut
"""

import json
from collections import Counter, defaultdict
from dataclasses import replace
from typing import Any

import sqlalchemy as sa

from gyre.ids import split_sample_id
from services.ledger.core.parts import in_parts
from services.ledger.explorer.answers.attempts import Attempt, details, newest
from services.ledger.explorer.scope import Scope
from services.ledger.queries.sql import rows

SAMPLES_MAX = 500

_USAGE = "SELECT execution_id, attempt, version, tokens FROM usage WHERE run = :run AND execution_id IN :ids AND version >= 0"
_STEPS = (
    "SELECT step, version, samples, targets, updated_at_s, metrics_json FROM steps WHERE run = :run AND step IN :ids"
)
_WEIGHTS = "SELECT version, at_s FROM weights WHERE run = :run"
_LAST = "SELECT max(step) AS step FROM step_samples WHERE run = :run"


def lineage(connection: sa.Connection, scope: Scope) -> dict[str, Any]:
    """The answer whose shape the module's docstring gives."""
    given = [scope.step, scope.version, scope.dispatched, scope.group or None, scope.sample or None]
    chosen_step = None
    if all(one is None for one in given):
        chosen_step = rows(connection, _LAST, run=scope.run)[0]["step"]
        scope = replace(scope, step=-1 if chosen_step is None else chosen_step)
    scope = replace(scope, limit=min(scope.limit, SAMPLES_MAX))
    ids = newest(connection, scope)
    attempts = details(connection, scope, ids)
    used = _usage(connection, scope.run, attempts)
    return {
        "step": chosen_step,
        "versions": _versions(connection, scope.run, attempts, used),
        "groups": _groups(attempts),
        "samples": [
            {"sample": row.sample_id, "group": row.group_id, "state": row.state, "step": row.step, "advantage": row.advantage,
             "versions": used[row.sample_id]}
            for row in sorted(attempts)
        ],
        "steps": _steps(connection, scope, attempts),
        "matched": len(attempts), "cut": len(ids) >= scope.limit,
    }  # fmt: skip


def _usage(connection: sa.Connection, run: str, attempts: list[Attempt]) -> dict[str, list[list[int]]]:
    """Sample → [[version, tokens]], oldest version first."""
    query = sa.text(_USAGE).bindparams(sa.bindparam("ids", expanding=True))
    wanted = {split_sample_id(row.sample_id): row.sample_id for row in attempts}
    found: dict[str, list[list[int]]] = defaultdict(list)
    for some in in_parts(sorted({execution for execution, _ in wanted})):
        for execution, attempt, version, tokens in connection.execute(query, {"run": run, "ids": some}):
            if (execution, attempt) in wanted:
                found[wanted[execution, attempt]].append([version, tokens])
    return defaultdict(list, {sample: sorted(pairs) for sample, pairs in found.items()})


def _versions(
    connection: sa.Connection, run: str, attempts: list[Attempt], used: dict[str, list[list[int]]]
) -> list[dict[str, Any]]:
    published = {row["version"]: row["at_s"] for row in rows(connection, _WEIGHTS, run=run)}
    groups = Counter(
        version for version in {row.group_id: row.dispatched for row in attempts}.values() if version is not None
    )
    samples, tokens = Counter(), Counter()
    for pairs in used.values():
        for version, count in pairs:
            samples[version] += 1
            tokens[version] += count
    return [
        {"version": version, "at_s": published.get(version), "groups": groups[version], "samples": samples[version], "tokens": tokens[version]}
        for version in sorted({*groups, *samples})
    ]  # fmt: skip


def _groups(attempts: list[Attempt]) -> list[dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for row in attempts:
        group = found.setdefault(
            row.group_id,
            {
                "group": row.group_id,
                "task_type": row.task_type,
                "dispatched": row.dispatched,
                "executions": 0,
                "trained": 0,
                "dropped": 0,
            },
        )
        group["executions"] += 1
        group["trained"] += row.state == "trained"
        group["dropped"] += row.state == "dropped"
    return [found[name] for name in sorted(found)]


def _steps(connection: sa.Connection, scope: Scope, attempts: list[Attempt]) -> list[dict[str, Any]]:
    numbers = sorted({row.step for row in attempts if row.step is not None})
    query = sa.text(_STEPS).bindparams(sa.bindparam("ids", expanding=True))
    found = []
    for some in in_parts(numbers):
        for step, version, samples, targets, at_s, metrics in connection.execute(
            query, {"run": scope.run, "ids": some}
        ):
            of_all = {"samples": samples, "targets": targets, "loss": json.loads(metrics or "{}").get("loss")}
            shown = of_all if scope.is_operator else dict.fromkeys(of_all)
            found.append({"step": step, "version": version, "at_s": at_s, **shown})
    return found

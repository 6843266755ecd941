"""Lineage both ways: which steps trained what, sampled by which weights; from a step, a sample, an execution, a group or a weight version.

`lineage` answers:

    kind, name   step, sample, execution, group or version, and what was asked for
    samples      [{sample_id, group_id, policy_version, version_min, version_mean, version_max, step, dropped}], by name, a page of them
    next         cursor of the next page, empty after the last
    steps        [{step, version, samples, replays}]      that trained them; `version` is what the step made
    groups       [{group_id, policy_version, samples}]    they are of, at most `limit`; `policy_version` as dispatched
    versions     [{version, tokens, turns, samples, made_by_step, published_at_s}]   that sampled them, by the version of each token
    counts       {samples, groups}
"""

import re
from typing import Any

import sqlalchemy as sa

from gyre.errors import InvalidInput, NotFound
from services.ledger.queries.sql import one, rows

LIMIT, LIMIT_MAX = 100, 10_000

_MEMBERS = {
    "step": """
SELECT sample_id FROM step_samples WHERE run = :run AND step = :name
UNION SELECT sample_id FROM elite_replays WHERE run = :run AND step = :name""",
    "sample": """
SELECT sample_id FROM attempts WHERE run = :run AND sample_id = :name
UNION SELECT sample_id FROM samples WHERE run = :run AND sample_id = :name""",
    "execution": "SELECT sample_id FROM attempts WHERE run = :run AND execution_id = :name",
    "group": """
SELECT a.sample_id FROM executions e CROSS JOIN attempts a
WHERE e.run = :run AND e.group_id = :name AND a.run = e.run AND a.execution_id = e.execution_id""",
    "version": """
SELECT a.sample_id FROM usage u CROSS JOIN attempts a
WHERE u.run = :run AND u.version = :name AND a.run = u.run AND a.execution_id = u.execution_id AND a.attempt = u.attempt""",
}
"""Kind → its samples. SQLite without statistics likes to read an index by `run` alone, which is the whole run: joins with members are CROSS JOINs,
whose order it keeps, and `step_samples` is asked for a column that no index covers."""

SAMPLES = """
SELECT x.sample_id, COALESCE(a.group_id, s.group_id) AS group_id, s.policy_version, s.version_min, s.version_mean, s.version_max, t.step,
       d.reason AS dropped
FROM ({members}) x
LEFT JOIN attempts a ON a.run = :run AND a.sample_id = x.sample_id
LEFT JOIN samples s ON s.run = :run AND s.sample_id = x.sample_id
LEFT JOIN step_samples t ON t.run = :run AND t.sample_id = x.sample_id AND COALESCE(t.targets, 0) >= 0
LEFT JOIN drops d ON d.run = :run AND d.sample_id = x.sample_id
WHERE COALESCE(x.sample_id, '') > :after ORDER BY COALESCE(x.sample_id, '') LIMIT :most
"""

STEPS = """
SELECT y.step, u.version, sum(y.samples) AS samples, sum(y.replays) AS replays
FROM (SELECT t.step, 1 AS samples, 0 AS replays FROM ({members}) x CROSS JOIN step_samples t
      WHERE t.run = :run AND t.sample_id = x.sample_id AND COALESCE(t.targets, 0) >= 0
      UNION ALL SELECT e.step, 0, 1 FROM elite_replays e WHERE e.run = :run AND e.sample_id IN ({members})) y
LEFT JOIN steps u ON u.run = :run AND u.step = y.step
GROUP BY y.step, u.version ORDER BY y.step
"""

GROUPS = """
SELECT a.group_id, min(d.policy_version) AS policy_version, count(DISTINCT x.sample_id) AS samples
FROM ({members}) x CROSS JOIN attempts a
LEFT JOIN dispatches d ON d.run = :run AND d.group_id = a.group_id
WHERE a.run = :run AND a.sample_id = x.sample_id
GROUP BY a.group_id ORDER BY a.group_id LIMIT :most
"""

VERSIONS = """
SELECT y.version, y.tokens, y.turns, y.samples, u.step AS made_by_step, w.at_s AS published_at_s
FROM (SELECT g.version, sum(g.tokens) AS tokens, sum(g.turns) AS turns, count(*) AS samples
      FROM ({members}) x CROSS JOIN attempts a CROSS JOIN usage g
      WHERE a.run = :run AND a.sample_id = x.sample_id AND g.run = :run AND g.execution_id = a.execution_id AND g.attempt = a.attempt
      GROUP BY g.version) y
LEFT JOIN steps u ON u.run = :run AND u.version = y.version
LEFT JOIN weights w ON w.run = :run AND w.version = y.version
ORDER BY y.version
"""

COUNTS = """
SELECT count(DISTINCT x.sample_id) AS samples, count(DISTINCT a.group_id) AS groups
FROM ({members}) x LEFT JOIN attempts a ON a.run = :run AND a.sample_id = x.sample_id
"""

_FORMS = (
    ("step", r"(?:step[- ]?)?([0-9]{1,18})"), ("version", r"v(?:ersion)?[- ]?([0-9]{1,18})"), ("sample", r"(\S+-e[0-9]+-a[0-9]+)"),
    ("execution", r"(\S+-e[0-9]+)"), ("group", r"(\S+)"),
)  # fmt: skip
"""The first that fits. Numbers are of so many digits that a database's integers hold them; what has more is the name of nothing."""


def lineage(connection: sa.Connection, run: str, name: str, after: str = "", limit: int = LIMIT) -> dict[str, Any]:
    """The answer whose shape the module's docstring gives. Raises NotFound, InvalidInput for a `limit` out of range."""
    if not 1 <= limit <= LIMIT_MAX:
        raise InvalidInput(f"limit {limit}: from 1 to {LIMIT_MAX}")
    kind, key = of_name(name)
    members = _MEMBERS[kind]

    def found(query: str, **values: Any) -> list[dict[str, Any]]:
        return rows(connection, query.format(members=members), run=run, name=key, **values)

    counts = one(connection, COUNTS.format(members=members), run=run, name=key)
    if not counts["samples"]:
        raise NotFound(
            f"no {kind} {key} with samples in run {run}; steps are `12`, versions `v12`, groups and samples by their names"
        )
    page = found(SAMPLES, after=after, most=limit + 1)
    return {
        "kind": kind, "name": str(key), "samples": page[:limit], "next": page[limit - 1]["sample_id"] if len(page) > limit else "",
        "steps": found(STEPS), "groups": found(GROUPS, most=limit), "versions": found(VERSIONS), "counts": counts,
    }  # fmt: skip


def of_name(name: str) -> tuple[str, str | int]:
    """What is meant: `12` and `step 12`, `v12`, `g000012`, `g000012-e3`, `g000012-e3-a1`. Raises InvalidInput."""
    for kind, form in _FORMS:
        if match := re.fullmatch(form, name.strip()):
            return kind, int(match[1]) if kind in ("step", "version") else match[1]
    raise InvalidInput(f"{name!r} names neither a step, a weight version, a group nor a sample")

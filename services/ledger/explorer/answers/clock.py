"""The policy's own clock: how many optimizer steps were done at a time, when versions were published, which role each cell had."""

from bisect import bisect_right
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import numpy as np
import sqlalchemy as sa

from gyre.numbers import is_count
from services.ledger.queries.sql import rows

_UPDATES = "SELECT version, updated_at_s FROM steps WHERE run = :run AND updated_at_s IS NOT NULL ORDER BY step"
_PUBLISHED = "SELECT version, at_s FROM weights WHERE run = :run ORDER BY version"
_NOW = """
SELECT max(at_s) AS at_s FROM (
    SELECT max(updated_at_s) AS at_s FROM steps WHERE run = :run
    UNION ALL SELECT max(at_s) FROM waterlevel WHERE run = :run
    UNION ALL SELECT max(at_s) FROM role_changes WHERE run = :run
    UNION ALL SELECT max(leased_at_s) FROM attempts WHERE run = :run
) t
"""
_PHASES = """
SELECT cell, target, phase, at_s FROM role_changes WHERE run = :run AND phase IN ('requested', 'serving', 'training') ORDER BY at_s, change
"""


@dataclass(frozen=True)
class PolicyClock:
    """Versions over time; `now_s` is when the books last heard anything."""

    versions: np.ndarray
    """int64[V], policy versions after each update, rising; without version 0."""
    updated_at_s: np.ndarray
    """float64[V]"""
    published: list[dict[str, Any]]
    """[{version, at_s}]"""
    now_s: float

    def at(self, times_s: np.ndarray) -> np.ndarray:
        """int64, the policy version at each time: updates done by then. NaN times give 0."""
        index = np.searchsorted(self.updated_at_s, np.nan_to_num(times_s, nan=-np.inf), side="right")
        return np.concatenate([[0], self.versions])[index]

    def at_one(self, time_s: float) -> int:
        """The same of a single time."""
        done = bisect_right(self.updated_at_s, time_s)
        return int(self.versions[done - 1]) if done else 0

    @property
    def newest(self) -> int:
        return int(self.versions[-1]) if len(self.versions) else 0


def policy_clock(connection: sa.Connection, run: str) -> PolicyClock:
    updates = rows(connection, _UPDATES, run=run)
    return PolicyClock(
        versions=np.array([row["version"] for row in updates], np.int64),
        updated_at_s=np.maximum.accumulate(np.array([row["updated_at_s"] for row in updates], float)) if updates else np.empty(0),
        published=rows(connection, _PUBLISHED, run=run),
        now_s=float(rows(connection, _NOW, run=run)[0]["at_s"] or 0.0),
    )  # fmt: skip


def roles(connection: sa.Connection, run: str, now_s: float) -> list[dict[str, Any]]:
    """[{cell, role, from_s, to_s}] in order of cells; `role` is rollout, training or changing."""
    marks: dict[str, list[tuple[float, str]]] = defaultdict(list)
    names = {"serving": "rollout", "training": "training", "requested": "changing"}
    for row in rows(connection, _PHASES, run=run):
        marks[row["cell"]].append((row["at_s"], names[row["phase"]]))
    spans = []
    for cell in sorted(marks, key=_natural):
        timed = marks[cell]
        for index, (from_s, role) in enumerate(timed):
            to_s = timed[index + 1][0] if index + 1 < len(timed) else max(now_s, from_s)
            if to_s > from_s:
                spans.append({"cell": cell, "role": role, "from_s": from_s, "to_s": to_s})
    return spans


def _natural(name: str) -> tuple[str, int]:
    head, _, tail = name.rpartition("-")
    return (head, int(tail)) if is_count(tail) else (name, -1)

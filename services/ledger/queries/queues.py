"""Queue wait and promotions over time, by duration tier (C1).

`queues` answers:

    tiers    {tier: {groups, wait_s_mean, wait_s_max, promotions, promoted_groups}}       of all dispatched train groups
    curves   {tier: [{from_s, groups, wait_s_mean, wait_s_max, promotions}]}              at most POINTS_MAX equal stretches of the run
    stretch_s  length of one stretch

Times are Unix seconds; a group counts when it was dispatched. What waits now is the scheduler's to say.
"""

from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from services.ledger.queries.sql import number, one, rows

POINTS_MAX = 60
"""A curve as wide as a terminal."""
STRETCH_S_MIN = 0.001
"""A run of one boundary has one point."""

SPAN = "SELECT min(at_s) AS first_s, max(at_s) AS last_s FROM dispatches WHERE run = :run AND purpose = 'train'"

DISPATCHED = """
SELECT tier, at_s, queue_wait_s, promotions FROM dispatches WHERE run = :run AND purpose = 'train' ORDER BY at_s, group_id
"""


def queues(connection: sa.Connection, run: str) -> dict[str, Any]:
    """The answer whose shape the module's docstring gives."""
    span = one(connection, SPAN, run=run)
    if span["first_s"] is None:
        return {"tiers": {}, "curves": {}, "stretch_s": 0.0}
    first_s = float(span["first_s"])
    stretch_s = max((float(span["last_s"]) - first_s) / POINTS_MAX, STRETCH_S_MIN)
    tiers: dict[str, _Sum] = {}
    curves: dict[str, dict[int, _Sum]] = {}
    # Rounding to whole stretches is done here: databases differ in it.
    for row in rows(connection, DISPATCHED, run=run):
        index = min(POINTS_MAX - 1, int((float(row["at_s"]) - first_s) / stretch_s))
        for total in (
            tiers.setdefault(row["tier"], _Sum()),
            curves.setdefault(row["tier"], {}).setdefault(index, _Sum()),
        ):
            total.add(float(number(row["queue_wait_s"])), int(number(row["promotions"])))
    return {
        "tiers": {tier: {**total.told(), "promoted_groups": total.promoted_groups} for tier, total in tiers.items()},
        "curves": {
            tier: [{"from_s": first_s + index * stretch_s, **total.told()} for index, total in points.items()]
            for tier, points in curves.items()
        },
        "stretch_s": stretch_s,
    }


@dataclass
class _Sum:
    groups: int = 0
    wait_s: float = 0.0
    wait_s_max: float = 0.0
    promotions: int = 0
    promoted_groups: int = 0

    def add(self, wait_s: float, promotions: int) -> None:
        self.groups += 1
        self.wait_s += wait_s
        self.wait_s_max = max(self.wait_s_max, wait_s)
        self.promotions += promotions
        self.promoted_groups += promotions > 0

    def told(self) -> dict[str, float]:
        return {
            "groups": self.groups, "wait_s_mean": self.wait_s / self.groups, "wait_s_max": self.wait_s_max, "promotions": self.promotions,
        }  # fmt: skip

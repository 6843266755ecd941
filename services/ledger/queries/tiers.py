"""Waits and promotions of duration tiers as curves (C1): is a tier starved, since when, and does aging bring its groups through?

`tiers` answers:

    tiers      {tier: {groups, wait_s: {p50, p90, p99, max, mean}, promotions, promoted_share, executions}}
    curves     {tier: [{from_s, groups, wait_s: {p50, p90, p99, max, mean}, promotions, promoted_share}]}   stretches with groups only
    arrived    {tier at enqueue: {tier dispatched from: groups}}
    stretch_s  length of one stretch, from_s, to_s
    starved    {tier: groups that waited longer than `starvation_s`}, starvation_s

A group counts when it was dispatched, evaluation groups too: they stand in the same queues. Quantiles are of the groups themselves (the smallest
wait that at least that share of groups did not exceed). Times are Unix seconds.
"""

import math
from collections import defaultdict
from typing import Any

import numpy as np
import sqlalchemy as sa

from gyre.config import Config
from gyre.errors import InvalidInput
from services.ledger.queries.sql import number, rows

POINTS, POINTS_MAX = 40, 2_000
STRETCH_S_MIN = 0.001
QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}

DISPATCHED = """
SELECT d.tier, d.at_s, d.queue_wait_s, d.promotions, d.executions, g.tier AS enqueued_in
FROM dispatches d LEFT JOIN groups g ON g.run = d.run AND g.group_id = d.group_id
WHERE d.run = :run ORDER BY d.at_s, d.group_id
"""


def tiers(connection: sa.Connection, run: str, config: Config, points: int = POINTS) -> dict[str, Any]:
    """The answer whose shape the module's docstring gives; curves of at most `points` stretches. Raises InvalidInput."""
    if not 1 <= points <= POINTS_MAX:
        raise InvalidInput(f"{points} points: from 1 to {POINTS_MAX}")
    found = rows(connection, DISPATCHED, run=run)
    line_s = config.scheduler.starvation_s
    if not found:
        return {"tiers": {}, "curves": {}, "arrived": {}, "stretch_s": 0.0, "starved": {}, "starvation_s": line_s}
    first_s, last_s = found[0]["at_s"], found[-1]["at_s"]
    stretch_s = max((last_s - first_s) / points, STRETCH_S_MIN)
    whole: dict[str, list[dict]] = defaultdict(list)
    parts: dict[str, dict[int, list[dict]]] = defaultdict(lambda: defaultdict(list))
    arrived: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for row in found:
        whole[row["tier"]].append(row)
        parts[row["tier"]][min(points - 1, int((row["at_s"] - first_s) / stretch_s))].append(row)
        arrived[row["enqueued_in"] or row["tier"]][row["tier"]] += 1
    return {
        "tiers": {tier: {**_summary(group), "executions": sum(number(row["executions"]) for row in group)} for tier, group in whole.items()},
        "curves": {
            tier: [{"from_s": first_s + index * stretch_s, **_summary(group)} for index, group in sorted(stretches.items())]
            for tier, stretches in parts.items()
        },
        "arrived": {tier: dict(to) for tier, to in arrived.items()},
        "stretch_s": stretch_s, "from_s": first_s, "to_s": last_s,
        "starved": {tier: sum(number(row["queue_wait_s"]) > line_s for row in group) for tier, group in whole.items()},
        "starvation_s": line_s,
    }  # fmt: skip


def _summary(group: list[dict[str, Any]]) -> dict[str, Any]:
    waits_s = np.sort([float(number(row["queue_wait_s"])) for row in group])
    promotions = [int(number(row["promotions"])) for row in group]
    quantiles = {name: float(waits_s[math.ceil(share * len(waits_s)) - 1]) for name, share in QUANTILES.items()}
    return {
        "groups": len(group), "wait_s": {**quantiles, "max": float(waits_s[-1]), "mean": float(waits_s.mean())},
        "promotions": sum(promotions), "promoted_share": sum(count > 0 for count in promotions) / len(group),
    }  # fmt: skip

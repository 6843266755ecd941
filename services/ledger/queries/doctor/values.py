"""Value divergence: advantages, gradients or the loss explode (D6)."""

import json
import math

import numpy as np
import sqlalchemy as sa

from gyre.config import Config
from services.ledger.core.trends import robust_z
from services.ledger.queries.doctor.finding import Evidence, Finding, Room
from services.ledger.queries.sql import rows

STEPS = 64
"""Newest steps that are looked at; the last NOW of them against the others."""
NOW, BEFORE_MIN = 4, 8
ROBUST_Z_MAX, RATIO_MAX = 6.0, 3.0
"""Both: far outside what was usual, and several times as large; either alone is usual of quiet or of small numbers."""

BY_STEP = """
SELECT t.step, avg(abs(s.advantage)) AS advantage FROM step_samples t JOIN samples s ON s.run = t.run AND s.sample_id = t.sample_id
WHERE t.run = :run AND t.step > :newest - :steps AND s.advantage IS NOT NULL GROUP BY t.step ORDER BY t.step
"""
NEWEST = "SELECT max(step) AS step FROM steps WHERE run = :run AND updated_at_s IS NOT NULL"
METRICS = """
SELECT u.step, u.metrics_json, COALESCE(b.no_gradient, false) AS no_gradient FROM steps u LEFT JOIN batches b ON b.run = u.run AND b.step = u.step
WHERE u.run = :run AND u.updated_at_s IS NOT NULL AND u.step > :newest - :steps ORDER BY u.step
"""

REMEDY = (
    "reinitialise the critic (trajproc.critic = \"zero\" for a while, or another), halve trainer.lr, go back to the last stable checkpoint; lower "
    "trajproc.lambda_scale's reach or set advantage = \"group_std\" where rewards have changed scale"
)  # fmt: skip


def values(connection: sa.Connection, run: str, _config: Config, _room: Room) -> Finding:
    """Mean |advantage| and gradient norm of the newest steps against those before; a loss that is no number."""
    newest = rows(connection, NEWEST, run=run)[0]["step"]
    if newest is None:
        return Finding("value_divergence", [], "no step is done", REMEDY)
    told = [
        (row["step"], json.loads(row["metrics_json"] or "{}"), bool(row["no_gradient"]))
        for row in rows(connection, METRICS, run=run, newest=newest, steps=STEPS)
    ]
    broken = [
        step
        for step, metrics, is_empty in told
        if not is_empty and "loss" in metrics and not _is_finite(metrics["loss"])
    ]
    evidence = [Evidence("steps with a gradient whose loss is no number", float(len(broken)), 1.0, bool(broken))]
    words = [f"loss of step {broken[-1]} is no number" if broken else f"{len(told)} steps with a finite loss"]
    norms = [
        metrics["grad_norm"] for _, metrics, is_empty in told if not is_empty and _is_finite(metrics.get("grad_norm"))
    ]
    sizes = [row["advantage"] for row in rows(connection, BY_STEP, run=run, newest=newest, steps=STEPS)]
    for what, series in (("mean |advantage|", sizes), ("gradient norm", norms)):
        if found := _explosion(what, series):
            evidence.append(found[0])
            words.append(found[1])
    if len(evidence) == 1 and not broken:
        return Finding("value_divergence", [], f"{len(told)} steps, {NOW + BEFORE_MIN} needed", REMEDY)
    return Finding("value_divergence", evidence, "; ".join(words), REMEDY)


def _explosion(what: str, series: list[float]) -> tuple[Evidence, str] | None:
    if len(series) < NOW + BEFORE_MIN:
        return None
    now, before = float(np.median(series[-NOW:])), series[:-NOW]
    usual, z = float(np.median(before)), robust_z(now, before)
    is_over = z > ROBUST_Z_MAX and now > RATIO_MAX * usual
    figure = f"{what} {usual:.3g} → {now:.3g} over the last {NOW} steps, robust z {z:.1f}"
    return Evidence(f"{what}: robust z of the last {NOW} steps", z, ROBUST_Z_MAX, is_over), figure


def _is_finite(value: float | None) -> bool:
    return value is not None and math.isfinite(value)

"""Sampling lag: what is trained was sampled by weights that are too old, or a cell has stopped taking new ones (A5, C8)."""

import json

import sqlalchemy as sa

from gyre.config import Config
from gyre.config.staleness import law_steps
from services.ledger.queries.doctor.finding import Evidence, Finding, Room
from services.ledger.queries.sql import GROUP_VERSION, number, one, rows

STEPS = 16
"""Newest steps that are looked at."""
EXCESS_STEPS_MAX = 1.0
"""Mean staleness over the law's: the law holds whatever the durations, so a step more is no chance over this many steps."""
AGE_SHARE_MAX = 0.05
"""Executions sampled in vain because they came too late: one in twenty."""
COUNT_MIN = 32
"""Executions of these steps: of fewer, one in twenty tells nothing."""
ATTEMPTS = 2_000
"""Newest attempts whose calls say which cell serves which weights."""
PUBLISHES_BEHIND = 2
"""A cell loads weights at a boundary; one publish behind is on its way."""

STALENESS = f"""
SELECT avg(c.step - v.policy_version) AS mean, count(*) AS groups FROM batch_groups c
JOIN ({GROUP_VERSION}) v ON v.run = c.run AND v.group_id = c.group_id
WHERE c.run = :run AND c.step > (SELECT max(step) FROM batch_groups WHERE run = :run) - {STEPS}
"""
DROPPED = f"""
SELECT count(*) AS dropped, (SELECT count(*) FROM batch_samples b WHERE b.run = :run AND b.step > :newest - {STEPS}) AS kept
FROM drops WHERE run = :run AND reason = 'age' AND step > :newest - {STEPS}
"""
NEWEST = "SELECT max(step) AS step FROM batches WHERE run = :run"
SERVED = f"""
SELECT c.cells_json, max(c.version_max) AS version, max(c.at_s) AS last_s, count(*) AS calls
FROM (SELECT sample_id FROM attempts WHERE run = :run AND leased_at_s IS NOT NULL ORDER BY leased_at_s DESC LIMIT {ATTEMPTS}) a
JOIN calls c ON c.run = :run AND c.sample_id = a.sample_id
WHERE c.version_max IS NOT NULL GROUP BY c.cells_json
"""
PUBLISHED = "SELECT max(version) AS version FROM weights WHERE run = :run AND at_s <= :until_s"

REMEDY = (
    "a cell behind the others: its log, then restart it (its calls go on elsewhere); all of them: less dispatch depth (scheduler.extra_depth_steps), "
    "a publish more often (scheduler.steps_per_publish), more training capacity, or shorter executions; `gyre books` has staleness by step"
)


def lag(connection: sa.Connection, run: str, config: Config, _room: Room) -> Finding:
    """Staleness against the law, drops by age, and each cell's newest weights against those published when it last sampled."""
    evidence, words = [], []
    found, law = one(connection, STALENESS, run=run), law_steps(config.scheduler)
    if found["groups"]:
        excess = float(found["mean"]) - law
        evidence.append(
            Evidence(
                f"mean staleness of the last {STEPS} steps over the law's {law:g}, in steps",
                excess,
                EXCESS_STEPS_MAX,
                excess > EXCESS_STEPS_MAX,
            )
        )
        words.append(f"staleness {float(found['mean']):.2f} steps, law {law:g}")
    newest = one(connection, NEWEST, run=run)["step"]
    counts = one(connection, DROPPED, run=run, newest=newest) if newest is not None else {"dropped": 0, "kept": 0}
    if (total := counts["dropped"] + counts["kept"]) >= COUNT_MIN:
        share = counts["dropped"] / total
        evidence.append(
            Evidence(
                f"share dropped by age of the last {STEPS} steps' executions",
                share,
                AGE_SHARE_MAX,
                share > AGE_SHARE_MAX,
            )
        )
        words.append(f"{share:.1%} dropped by age")
    line = float(PUBLISHES_BEHIND * config.scheduler.steps_per_publish)
    for cell, (version, last_s) in sorted(_cells(connection, run).items()):
        behind = number(one(connection, PUBLISHED, run=run, until_s=last_s)["version"]) - version
        evidence.append(
            Evidence(
                f"{cell}: steps its newest tokens' weights are behind those published",
                float(behind),
                line,
                behind > line,
            )
        )
        if behind > line:
            words.append(f"{cell} still samples with version {version}, {behind} steps behind")
    return Finding(
        "sampling_lag",
        evidence,
        "; ".join(words) or "no batch is closed yet",
        REMEDY,
        ("staleness_bound", "weights", "cell_silent"),
    )


def _cells(connection: sa.Connection, run: str) -> dict[str, tuple[int, float]]:
    """Cell → newest version of its tokens, when. Calls that several cells sampled say nothing of either."""
    newest: dict[str, tuple[int, float]] = {}
    for row in rows(connection, SERVED, run=run):
        cells = json.loads(row["cells_json"] or "[]")
        if len(cells) == 1:
            version, last_s = newest.get(cells[0], (row["version"], row["last_s"]))
            newest[cells[0]] = (max(version, row["version"]), max(last_s, row["last_s"]))
    return newest

"""Storage overflow: the disk fills faster than the run ends, or samples pile up faster than they are trained."""

import sqlalchemy as sa

from gyre.config import Config
from services.ledger.queries.doctor.finding import Evidence, Finding, Room
from services.ledger.queries.sql import number, one

FULL_HOURS_MIN = 24.0
"""A disk that is full within a day needs somebody today."""
AGE_MIN_S = 600.0
"""A run younger than this has no rate of growth worth extending."""
FREE_BYTES_MIN = 1 << 30

SINCE = """
SELECT (SELECT min(at_s) FROM dispatches WHERE run = :run) AS first_s,
       (SELECT count(*) FROM alarms WHERE run = :run AND kind = 'ledger_database') AS refused
"""
WAITING = """
SELECT count(*) AS samples, COALESCE(sum(s.turns), 0) AS turns, COALESCE(sum(s.tokens_tree), 0) AS tokens FROM samples s
WHERE s.run = :run
  AND NOT EXISTS (SELECT 1 FROM step_samples t WHERE t.run = s.run AND t.sample_id = s.sample_id)
  AND NOT EXISTS (SELECT 1 FROM batch_samples b WHERE b.run = s.run AND b.sample_id = s.sample_id)
  AND NOT EXISTS (SELECT 1 FROM drops d WHERE d.run = s.run AND d.sample_id = s.sample_id)
"""
SAMPLED = "SELECT count(*) AS samples FROM samples WHERE run = :run"

REMEDY = (
    "disk: `gyre compact` what is old, move ledger.database or the run's folder, set trajproc.keep_trees = false; samples: less dispatch depth "
    "(scheduler.extra_depth_steps), fewer cells in rollout, or larger batches (trajproc.turns_per_step): what waits longer than "
    "trajproc.age_steps_max steps is dropped by age and was sampled in vain"
)


def storage(connection: sa.Connection, run: str, config: Config, room: Room) -> Finding:
    """Samples that are ready and in no batch, in steps of training; hours until the disk is full as fast as the books have grown."""
    evidence, words = [], []
    if one(connection, SAMPLED, run=run)["samples"]:
        waiting = one(connection, WAITING, run=run)
        steps = float(number(waiting["turns"])) / config.trajproc.turns_per_step
        line = float(config.trajproc.age_steps_max)
        evidence.append(Evidence("steps of training that wait in ready samples", steps, line, steps > line))
        words.append(
            f"{waiting['samples']} samples with {number(waiting['tokens'])} tokens wait, {steps:.1f} steps of training"
        )
    since = one(connection, SINCE, run=run)
    if room.free_bytes is not None:
        evidence.append(
            Evidence(
                "bytes free on the disk of the books",
                float(room.free_bytes),
                float(FREE_BYTES_MIN),
                room.free_bytes < FREE_BYTES_MIN,
            )
        )
        words.append(f"{room.free_bytes / 1e9:.1f} GB free")
    age_s = room.now_s - since["first_s"] if room.now_s is not None and since["first_s"] is not None else 0.0
    if room.free_bytes is not None and room.database_bytes and age_s > AGE_MIN_S:
        hours = room.free_bytes / (room.database_bytes / age_s) / 3600
        evidence.append(
            Evidence("hours until the books have filled the disk", hours, FULL_HOURS_MIN, hours < FULL_HOURS_MIN)
        )
        words.append(f"books of {room.database_bytes / 1e9:.2f} GB, full in {hours:.0f} h at this rate")
    if since["refused"]:
        words.append(f"the database has refused facts {since['refused']} times")
    return Finding(
        "storage_overflow", evidence, "; ".join(words) or "no sample is ready yet", REMEDY, ("ledger_database",)
    )

"""Process-reward gaming: pay rises through repeated cheap actions while what is verified stands still (D4).

The lines are those of the alarm `reward_gaming`, which watches while a run lasts; here the newest samples of each task type are looked at again.
"""

import json
from collections import defaultdict

import sqlalchemy as sa

from gyre.config import Config
from services.ledger.core.trends import scales
from services.ledger.queries.doctor.finding import Z_MIN, Evidence, Finding, Room
from services.ledger.queries.sql import number, rows

RISE_MIN, STILL_SHARE, REPEATS_RISE_MIN = 0.03, 0.25, 0.1
"""Of pay; of that rise, what is verified; of tool calls, those that repeat an earlier one."""
TYPES_MAX = 16
"""Task types whose windows are read: those of the newest samples."""

VERIFIED, SHAPED = ("outcome", "milestone.", "rule."), ("learned.", "dense.")

SAMPLES = """
SELECT task_type, rewards_json, repeated_share FROM (
  SELECT task_type, rewards_json, repeated_share, at_s, sample_id FROM samples WHERE run = :run ORDER BY at_s DESC, sample_id DESC LIMIT :most) y
ORDER BY at_s, sample_id
"""

REMEDY = (
    "cap what process reward can pay (trajproc.milestone_share, weights of learned and dense evaluators), gate milestones by the verified "
    "(trajproc.milestones_gated), add a rule that fails repeated calls; `gyre explain` a sample with a high repeated_share"
)


def gaming(connection: sa.Connection, run: str, config: Config, _room: Room) -> Finding:
    """Each task type's newest `trajproc.gaming_window` samples."""
    window = config.trajproc.gaming_window or 512
    by_type = defaultdict(list)
    for row in rows(connection, SAMPLES, run=run, most=window * TYPES_MAX):
        rewards = json.loads(row["rewards_json"] or "{}")
        shaped, verified = (_pay(rewards, names) for names in (SHAPED, VERIFIED))
        by_type[row["task_type"]].append((shaped, verified, float(number(row["repeated_share"]))))
    evidence, words = [], []
    for task_type, points in sorted(by_type.items()):
        shaped, verified, repeated = (scales([point[place] for point in points], window) for place in range(3))
        gaps = scales([point[0] - point[1] for point in points], window)
        looks = list(zip(shaped, verified, repeated, gaps, strict=True))
        if not looks:
            continue
        over = [
            look for look in looks
            if look[0].rise >= RISE_MIN and look[1].rise <= STILL_SHARE * look[0].rise and look[3].z >= Z_MIN
            and look[2].rise >= REPEATS_RISE_MIN
        ]  # fmt: skip
        pay, sure, repeats, _ = (over or looks)[-1]
        evidence.append(
            Evidence(
                f"{task_type}: rise of repeated tool calls while pay rises and what is verified stands still",
                repeats.rise,
                REPEATS_RISE_MIN,
                bool(over),
            )
        )
        words.append(
            f"{task_type}, {pay.count} samples against {pay.count} before: pay of models {pay.before:.3f} → {pay.now:.3f}, verified "
            f"{sure.before:.3f} → {sure.now:.3f}, repeats {repeats.before:.0%} → {repeats.now:.0%}"
        )
    least = 2 * (window // 8)
    return Finding(
        "process_gaming",
        evidence,
        "; ".join(words) or f"no task type has {least} samples yet",
        REMEDY,
        ("reward_gaming",),
    )


def _pay(rewards: dict[str, float], names: tuple[str, ...]) -> float:
    return sum(value or 0.0 for name, value in rewards.items() if name.startswith(names))

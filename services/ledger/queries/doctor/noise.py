"""Too much exploration noise: the same weights do far better when they are sampled more soberly (D7)."""

import sqlalchemy as sa

from gyre.config import Config
from services.ledger.core.trends import share_z
from services.ledger.queries.doctor.finding import Z_MIN, Evidence, Finding, Room
from services.ledger.queries.sql import one

WINDOW = 512
GAP_MIN = 0.1
"""One in ten executions that succeed soberly and fail in training: exploration has its price, this is more."""
COUNT_MIN = 32
"""Executions of each purpose: with fewer only gaps beyond a third could be told from chance."""

SHARES = """
SELECT count(CASE WHEN x.purpose = 'train' THEN 1 END) AS train, count(CASE WHEN x.purpose = 'train' AND x.outcome >= 1 THEN 1 END) AS train_hits,
       count(CASE WHEN x.purpose = 'evaluation' THEN 1 END) AS evaluation,
       count(CASE WHEN x.purpose = 'evaluation' AND x.outcome >= 1 THEN 1 END) AS evaluation_hits,
       avg(CASE WHEN x.purpose = 'train' THEN g.temperature END) AS train_temperature,
       avg(CASE WHEN x.purpose = 'evaluation' THEN g.temperature END) AS evaluation_temperature
FROM attempts x JOIN groups g ON g.run = x.run AND g.group_id = x.group_id
WHERE x.run = :run AND x.outcome IS NOT NULL AND x.policy_version >= :since
"""
SINCE = """
SELECT min(y.policy_version) AS since FROM (
  SELECT policy_version FROM attempts WHERE run = :run AND purpose = 'train' AND outcome IS NOT NULL
  ORDER BY policy_version DESC LIMIT :window) y
"""

REMEDY = (
    "lower tasks.temperature (or let it anneal), and parameter noise where there is some, until training succeeds as often as evaluation less "
    "the line"
)


def noise(connection: sa.Connection, run: str, _config: Config, _room: Room) -> Finding:
    """Training against evaluation over the versions of the newest WINDOW training executions."""
    since = one(connection, SINCE, run=run, window=WINDOW)["since"]
    found = one(connection, SHARES, run=run, since=since or 0)
    if found["train"] < COUNT_MIN or found["evaluation"] < COUNT_MIN:
        figure = (
            f"{found['train']} training and {found['evaluation']} evaluation executions with an outcome since version {since or 0}, "
            f"{COUNT_MIN} of each needed"
        )
        return Finding("exploration_noise", [], figure, REMEDY)
    train, evaluation = found["train_hits"] / found["train"], found["evaluation_hits"] / found["evaluation"]
    hotter = found["train_temperature"] - found["evaluation_temperature"]
    z = share_z(found["evaluation_hits"], found["evaluation"], found["train_hits"], found["train"])
    gap = Evidence("success of evaluation less that of training, at a lower temperature", evaluation - train, GAP_MIN,
                   evaluation - train > GAP_MIN and z >= Z_MIN and hotter > 0)  # fmt: skip
    figure = (
        f"training at temperature {found['train_temperature']:.2g} succeeds in {train:.0%} of {found['train']}, evaluation at "
        f"{found['evaluation_temperature']:.2g} in {evaluation:.0%} of {found['evaluation']}, z {z:.1f}, since version {since}"
    )
    return Finding("exploration_noise", [gap], figure, REMEDY)

"""Reward drift: the reward model no longer says what people say, or pays ever more for what is verified no better (D8)."""

import sqlalchemy as sa

from gyre.config import Config
from services.ledger.core.trends import scales
from services.ledger.queries.agreement import agreement
from services.ledger.queries.doctor.finding import Z_MIN, Evidence, Finding, Room
from services.ledger.queries.sql import rows

WINDOW = 512
RISE_MIN = 0.05
"""Of a score in [0, 1]: less is not worth anybody's time."""
STILL_SHARE = 0.25
"""What is verified stands still where it rises by less than this part."""

SCORED = """
SELECT y.evaluator, y.value, a.outcome FROM (
  SELECT evaluator, value, sample_id, at_s FROM scores WHERE run = :run AND kind = 'learned' AND value IS NOT NULL
  ORDER BY at_s DESC, sample_id DESC LIMIT :window) y
JOIN attempts a ON a.run = :run AND a.sample_id = y.sample_id AND a.outcome IS NOT NULL
ORDER BY y.at_s, y.sample_id
"""

REMEDY = (
    "lower the model's weight ([[evaluators]] weight) to what `gyre agreement` leaves it, have people judge a new daily sample and refit the model "
    "on it; until then let rules and the verified outcome pay"
)


def drift(connection: sa.Connection, run: str, config: Config, _room: Room) -> Finding:
    """People's judgements against the model's scores, and the scores' trend against the outcome's."""
    full = config.ledger.agreement_full
    evidence, words = [], []
    for row in agreement(connection, run, config)["models"]:
        if row["agreement"] is None:
            continue
        # Ill where the model is known not to reach the line; that it is not known to reach it only costs it weight.
        evidence.append(
            Evidence(
                f"{row['model']}: upper bound of its agreement with people, too low under",
                row["high"],
                full,
                row["high"] < full,
            )
        )
        words.append(
            f"{row['model']} agrees with people in {row['agreement']:.0%} of {row['pairs']} pairs ({row['low']:.2f} to {row['high']:.2f})"
        )
        if fell := row["fell"]:
            evidence.append(
                Evidence(
                    f"{row['model']}: agreement since {fell['day']}, below before by at least",
                    fell["by_at_least"],
                    0.0,
                    fell["by_at_least"] > 0,
                )
            )
    for name, found in _trends(connection, run).items():
        evidence.append(found)
        words.append(
            f"{name}: score rose by {found.value:.3f} more than its verified part"
            if found.is_over
            else f"{name}: score follows the outcome"
        )
    return Finding(
        "reward_drift",
        evidence,
        "; ".join(words) or "nobody's judgements (`gyre agreement --import`), no learned evaluator",
        REMEDY,
        ("reward_drift",),
    )


def _trends(connection: sa.Connection, run: str) -> dict[str, Evidence]:
    by_name: dict[str, list[tuple[float, float]]] = {}
    for row in rows(connection, SCORED, run=run, window=WINDOW * 4):
        by_name.setdefault(row["evaluator"], []).append((row["value"], row["outcome"]))
    answer = {}
    for name, points in by_name.items():
        score, outcome, gap = (
            [f(*point) for point in points] for f in (lambda s, _: s, lambda _, o: o, lambda s, o: s - o)
        )
        looks = list(zip(scales(score, WINDOW), scales(outcome, WINDOW), scales(gap, WINDOW), strict=True))
        if not looks:
            continue
        over = [s for s, o, g in looks if s.rise >= RISE_MIN and o.rise <= STILL_SHARE * s.rise and g.z >= Z_MIN]
        most = max((s.rise for s in over), default=max(g.rise for _, _, g in looks))
        answer[name] = Evidence(f"{name}: rise of its score while the outcome stands still", most, RISE_MIN, bool(over))
    return answer

"""Do reward models say what people say (D8)?

`agreement` answers:

    models   [{model, samples, pairs, agreement, low, high, effective_pairs, weight, configured_weight, in_force, by_type, by_day, fell}], by name
             samples: judged by people and by the model; pairs: of one task type, that people order; agreement: share of them that the model orders
             the same way (null without a pair); low, high: 95 % interval (how it is had: services/ledger/core/agreement.py)
             weight: what is left of the model's weight, clip((low − ½)/(full − ½), 0, 1); configured_weight: of [[evaluators]], null where it is none
             in_force: {weight, at_s} that `gyre agreement --apply` gave it last while the run went on, null where it never did
             by_type, by_day: {task type or day (UTC): {samples, pairs, agreement, low, high}}; of no day is what was judged at no moment
             fell: {day, before, now, by_at_least} the newest day against all before, null with less than two days; by_at_least > 0: both intervals
             are apart by that much
    people   {name: samples judged}
    full     lower bound from which on a model keeps its whole weight (ledger.agreement_full)

A model's score of a sample is the imported one, else what it said while the run went on (`scores`). Several people's scores of one sample are
averaged; people are comparable to each other then, or should judge samples of their own.
"""

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import numpy as np
import sqlalchemy as sa

from gyre.config import Config
from services.ledger.core.agreement import pairwise, weight
from services.ledger.core.moments import day
from services.ledger.queries.sql import rows

SAMPLES_MAX = 4_000
"""Newest judged samples that are compared: pairs grow with their square."""

PEOPLE = """
SELECT y.sample_id, y.judge, y.score, y.task_type, y.at_s FROM (
  SELECT sample_id, judge, score, task_type, at_s FROM judgements WHERE run = :run AND kind = 'person'
  ORDER BY at_s DESC, sample_id DESC LIMIT :most) y
ORDER BY y.at_s, y.sample_id, y.judge
"""
IMPORTED = "SELECT judge, sample_id, score FROM judgements WHERE run = :run AND kind = 'model'"
SAID = """
SELECT s.evaluator, s.sample_id, s.value FROM scores s WHERE s.run = :run AND s.kind = 'learned' AND s.value IS NOT NULL
  AND s.sample_id IN (SELECT sample_id FROM judgements WHERE run = :run AND kind = 'person')
"""

WEIGHED = "SELECT evaluator, weight, at_s FROM weighings WHERE run = :run ORDER BY at_s"


def agreement(connection: sa.Connection, run: str, config: Config) -> dict[str, Any]:
    """The answer whose shape the module's docstring gives."""
    judged = rows(connection, PEOPLE, run=run, most=SAMPLES_MAX)
    people: dict[str, int] = defaultdict(int)
    scores: dict[str, list[float]] = defaultdict(list)
    about: dict[str, tuple[str, str]] = {}
    for row in judged:
        people[row["judge"]] += 1
        scores[row["sample_id"]].append(row["score"])
        about[row["sample_id"]] = (row["task_type"] or "", day(row["at_s"]))
    models: dict[str, dict[str, float]] = defaultdict(dict)
    for row in rows(connection, SAID, run=run):
        models[row["evaluator"]][row["sample_id"]] = row["value"]
    for row in rows(connection, IMPORTED, run=run):
        models[row["judge"]][row["sample_id"]] = row["score"]
    # each divided first: the sum of two large scores is none
    wanted = {sample: float((np.array(values) / len(values)).sum()) for sample, values in scores.items()}
    weights = {one.name: one.weight for one in config.evaluators}
    full = config.ledger.agreement_full
    weighed = {
        row["evaluator"]: {"weight": row["weight"], "at_s": row["at_s"]} for row in rows(connection, WEIGHED, run=run)
    }
    found = [
        _model(name, said, wanted, about, full)
        | {"configured_weight": weights.get(name), "in_force": weighed.get(name)}
        for name, said in sorted(models.items())
    ]
    return {"models": found, "people": dict(people), "full": full}


def _model(
    name: str, said: dict[str, float], wanted: dict[str, float], about: dict[str, tuple[str, str]], full: float
) -> dict[str, Any]:
    both = [sample for sample in wanted if sample in said]
    whole = _compared(both, wanted, said, about)
    by_type, by_day = ({
        part: _compared([sample for sample in both if about[sample][place] == part], wanted, said, about)
        for part in sorted({about[sample][place] for sample in both} - ({""} if place else set()))
    } for place in (0, 1))  # fmt: skip
    left = weight(whole["low"], full) if whole["pairs"] else None
    return {
        "model": name,
        **whole,
        "weight": left,
        "by_type": by_type,
        "by_day": by_day,
        "fell": _fell(both, by_day, wanted, said, about),
    }


def _compared(
    samples: Iterable[str], wanted: dict[str, float], said: dict[str, float], about: dict[str, tuple[str, str]]
) -> dict[str, Any]:
    names = list(samples)
    found = pairwise(
        *(np.array([source[name] for name in names]) for source in (wanted, said)),
        np.array([about[name][0] for name in names]),
    )
    return {
        "samples": found.samples, "pairs": found.pairs, "agreement": found.agreement, "low": found.low, "high": found.high,
        "effective_pairs": found.effective,
    }  # fmt: skip


def _fell(both, by_day, wanted, said, about) -> dict[str, Any] | None:
    days = [day for day, part in by_day.items() if part["pairs"]]
    if len(days) < 2:
        return None
    before = _compared([sample for sample in both if "" < about[sample][1] < days[-1]], wanted, said, about)
    now = by_day[days[-1]]
    return {
        "day": days[-1],
        "before": before["agreement"],
        "now": now["agreement"],
        "by_at_least": before["low"] - now["high"],
    }

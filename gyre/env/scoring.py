"""Judging what an execution left behind (B4, D5)."""

import json
from functools import partial
from typing import Any

import msgspec

from gyre.env.environment import Environment, Score
from gyre.env.limits import checked_outcome, cut_detail, evidence_json, truth
from gyre.env.worker import Hung, Rubbish, Worker, shown
from gyre.errors import InvalidInput

SCORE_TRIES_MAX = 3
"""A failed evaluation is tried again this often in all, then said to be invalid; it never becomes a zero (B4)."""


class Evaluated(msgspec.Struct, frozen=True, kw_only=True):
    """A score with its milestones' weights and how many tries it took."""

    outcome: float
    valid: bool
    milestones: dict[str, bool] = {}
    milestone_weights: dict[str, float] = {}
    milestone_turns: dict[str, int] = {}
    evidence_json: str = "{}"
    tries: int = 1


async def judge(environment: Environment, worker: Worker, turns: dict[str, int]) -> Evaluated:
    """Judge what is there, trying again when the evaluation itself fails; `turns`: milestone → model calls after which it was first verified.
    Raises Hung, InvalidInput."""
    problem, looked_at = "", partial(_checked, dict(environment.milestones), turns)
    for tries in range(1, SCORE_TRIES_MAX + 1):
        try:
            evaluated = await worker.call(environment.score, timeout_s=environment.score_s, then=looked_at)
        except (Hung, Rubbish):
            raise
        except Exception as error:
            if worker.has_hung:
                raise Hung(f"a step hung, and score() then failed: {shown(error)}") from error
            problem = shown(error)
            continue
        evaluated = msgspec.structs.replace(evaluated, tries=tries)
        if evaluated.valid:
            return evaluated
        problem = evaluated.evidence_json
    evidence = json.dumps({"evaluation_failed": cut_detail(problem)})
    return Evaluated(outcome=0.0, valid=False, evidence_json=evidence, tries=SCORE_TRIES_MAX)


def _checked(weights: dict[str, float], turns: dict[str, int], score: Any) -> Evaluated:
    """Raises InvalidInput for what is no score."""
    if not isinstance(score, Score):
        raise InvalidInput(f"score() must return gyre.env.Score, not {type(score).__name__}")
    if not isinstance(score.milestones, dict):
        raise InvalidInput(f"Score.milestones must be a dict of names, not {type(score.milestones).__name__}")
    unknown = set(score.milestones) - set(weights)
    if unknown:
        raise InvalidInput(
            f"score() named milestones that the environment does not declare: {', '.join(sorted(map(str, unknown)))}"
        )
    return Evaluated(
        outcome=checked_outcome(score.outcome),
        valid=truth("Score.valid", score.valid),
        milestones={name: truth(f"milestone {name}", reached) for name, reached in score.milestones.items()},
        milestone_weights={name: float(weight) for name, weight in weights.items()},
        milestone_turns=dict(turns),
        evidence_json=evidence_json(score.evidence),
    )

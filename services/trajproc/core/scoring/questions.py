"""Which evaluators are still to be asked about which executions, and what it means that one did not answer (B4)."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from gyre.config import EvaluatorConfig
from gyre.records import ExecutionEnded, RewardScored
from services.trajproc.core.scoring.reward import why_no_reward

Scores = Mapping[str, RewardScored]
"""Evaluator → what it said of one attempt, or that it could not be had."""


class Question(NamedTuple):
    """One evaluator is to be asked about one attempt of one execution."""

    group_id: str
    execution_id: str
    attempt: int
    evaluator: str


def open_questions(ended: ExecutionEnded, scores: Scores, evaluators: Sequence[EvaluatorConfig]) -> list[Question]:
    """Evaluators without a word on record about an execution whose records are all there.

    An optional one is waited for as well, until its answer or its failure is on record: were it not, the answer that counts would be a
    matter of who was faster. Nobody is asked about what never becomes a reward, nor about a placeholder, which left nothing behind.
    """
    if why_no_reward(ended) or ended.evaluation.placeholder:
        return []
    return [
        Question(ended.group_id, ended.execution_id, ended.attempt, one.name)
        for one in evaluators
        if one.name not in scores
    ]


def failed_required(scores: Scores, evaluators: Sequence[EvaluatorConfig]) -> str:
    """Why an execution leaves training: what its required evaluators could not judge. Empty: they all did."""
    failed = [one.name for one in evaluators if one.required and one.name in scores and not scores[one.name].valid]
    return "; ".join(f"evaluator {name}: {scores[name].detail or 'no valid answer'}" for name in failed)


def missing_in_group(members: Iterable[Scores], evaluators: Sequence[EvaluatorConfig]) -> set[str]:
    """Optional evaluators left out for a whole group, as they have no score of one of its rewarded members.

    Advantages compare members: a component that only some have would look like a zero of the others. A guard speaks of one execution
    alone, so it is left out for that one only.
    """
    members = list(members)
    compared = [one for one in evaluators if one.kind != "guard"]
    return {one.name for one in compared if any(_value(scores, one.name) is None for scores in members)}


def values_of(scores: Scores, left_out: set[str]) -> dict[str, float]:
    """Evaluator → score, of those that count."""
    return {
        name: fact.value for name, fact in scores.items() if name not in left_out and _value(scores, name) is not None
    }


def _value(scores: Scores, name: str) -> float | None:
    fact = scores.get(name)
    return fact.value if fact is not None and fact.valid else None

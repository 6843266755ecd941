"""The composite reward of one execution, its components beside the total (D4, D5, B4)."""

import math

from gyre.errors import InvalidInput
from gyre.records import Evaluation, ExecutionEnded

SUCCESS_OUTCOME = 1.0
"""gyre.env.Score: an outcome of 1 is success."""


def why_no_reward(ended: ExecutionEnded) -> str:
    """The drop reason of an ending that never becomes a reward; empty where there is one.

    An error is an ending of its own (NeMo-RL#3470) and a failed evaluation is never a zero (B4).
    """
    if ended.ending == "failed":
        return "environment_failed"
    if ended.ending == "voided":
        return "voided"
    evaluation = ended.evaluation
    if evaluation is None or not evaluation.valid or not math.isfinite(evaluation.outcome):
        return "evaluation_failed"
    return ""


def composite(evaluation: Evaluation, milestone_share: float) -> tuple[float, dict[str, float]]:
    """Total in [0, 1] and its components.

    The outcome pays 1 − milestone_share; each verified milestone pays its weight once, all weights scaled down together where they
    sum to more than milestone_share. A placeholder (nothing to evaluate) pays nothing and is marked.
    """
    if not evaluation.valid:
        raise InvalidInput("an evaluation that failed has no reward")
    components = {"outcome": evaluation.outcome * (1.0 - milestone_share)}
    offered = sum(max(0.0, weight) for weight in evaluation.milestone_weights.values())
    scale = min(1.0, milestone_share / offered) if offered > 0 else 0.0
    for name, verified in sorted(evaluation.milestones.items()):
        weight = max(0.0, evaluation.milestone_weights.get(name, 0.0))
        components[f"milestone.{name}"] = weight * scale if verified else 0.0
    total = 0.0 if evaluation.placeholder else sum(components.values())
    if evaluation.placeholder:
        components = dict.fromkeys(components, 0.0) | {"placeholder": 1.0}
    return total, components


def is_success(evaluation: Evaluation) -> bool:
    return evaluation.valid and not evaluation.placeholder and evaluation.outcome >= SUCCESS_OUTCOME

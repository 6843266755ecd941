"""The composite reward of one execution, its components beside the total (D4, D5, B4).

Precedence, from above; each tier gets only what those above it leave open:

| tier | what is in it | what it pays |
|---|---|---|
| guard | evaluators of kind guard | nothing until one fires: then its value is the whole reward; of several the lowest, then by name |
| rules | outcome, milestones, evaluators of kind rule | R = (1 − r)·(outcome·(1 − s) + milestones up to s) + Σ w·score |
| learned | reward models | (1 − R)·Σ w·score |
| dense | shaping | what is left then, times Σ w·score |

r is the sum of the rules' weights, s is `trajproc.milestone_share`. What follows, whatever evaluators say, every score and weight being in [0, 1]:
    the components sum to the total, and the total is in [0, 1]
    R = 1 leaves nothing open: a model cannot add to, nor take from, what rules wholly verified
    R_a ≥ R_b + (1 − R_b)·q puts a above b, q = 1 − (1 − Σ w learned)·(1 − Σ w dense); gyre.config.evaluators
        refuses a q with which a failure could reach a verified success

Milestones are the environment's, verified by the state of its world; no evaluator can add one. Each is paid once: it is a name that is
true or not, in one evaluation at the end. Those of a task type in `trajproc.milestones_gated` pay beside a success only.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gyre.config import EvaluatorConfig, TrajprocConfig
from gyre.errors import InvalidInput
from gyre.records import Evaluation, ExecutionEnded

SUCCESS_OUTCOME = 1.0
"""gyre.env.Score: an outcome of 1 is success."""

EPSILON = 1e-9
"""Room smaller than this is none: (1 − .7) − .3 must not leave a model 1e-17 to tell equal executions apart with."""

DIGITS = 12
"""Decimals of a total, so that sums of the same parts are the same number."""


@dataclass(frozen=True, slots=True)
class Reward:
    """What one execution is paid."""

    total: float
    components: dict[str, float]
    """`outcome`, `milestone.<name>`, `guard.<name>` (only of a guard that fired), `rule.`, `learned.`, `dense.<name>`; they sum to the total.
    `placeholder` is a mark."""
    guard: str = ""
    """The guard that decided alone."""
    milestone_weights: dict[str, float] = field(default_factory=dict)
    """What each milestone pays when it is verified; empty where a guard decided. Credit along the execution is given by these."""


def why_no_reward(ended: ExecutionEnded) -> str:
    """The drop reason of an ending that never becomes a reward; empty where there is one.

    An error is an ending of its own (NeMo-RL#3470) and a failed evaluation is never a zero (B4).
    """
    if ended.ending == "failed":
        return "environment_failed"
    if ended.ending == "voided":
        return "voided"
    evaluation = ended.evaluation
    if evaluation is None or not evaluation.valid or not 0.0 <= evaluation.outcome <= 1.0:
        return "evaluation_failed"
    return ""


def composite(
    evaluation: Evaluation,
    config: TrajprocConfig,
    evaluators: Sequence[EvaluatorConfig] = (),
    values: Mapping[str, float] | None = None,
    task_type: str = "",
) -> Reward:
    """`values`: evaluator → its score in [0, 1]; one without a score is left out, and what it could have paid is the others'.

    Raises InvalidInput for an evaluation that failed. A placeholder (nothing to evaluate) pays nothing and is marked.
    """
    if not evaluation.valid:
        raise InvalidInput("an evaluation that failed has no reward")
    values = values or {}
    present = [one for one in evaluators if one.name in values]
    own = max(0.0, 1.0 - sum(one.weight for one in present if one.kind == "rule"))
    is_gated = task_type in config.milestones_gated and evaluation.outcome < SUCCESS_OUTCOME
    weights = {} if is_gated else paid_weights(evaluation, config.milestone_share)
    weights = {name: own * weight for name, weight in weights.items()}
    outcome = evaluation.outcome if config.outcome_counts else 0.0
    parts = {"outcome": own * outcome * (1.0 - config.milestone_share)}
    for name, verified in sorted(evaluation.milestones.items()):
        parts[f"milestone.{name}"] = weights.get(name, 0.0) if verified else 0.0
    parts |= _tier("rule", 1.0, present, values)
    if evaluation.placeholder:
        return Reward(0.0, dict.fromkeys(parts, 0.0) | {"placeholder": 1.0})
    for kind in ("learned", "dense"):
        room = 1.0 - sum(parts.values())
        parts |= _tier(kind, room if room > EPSILON else 0.0, present, values)
    fired = [one for one in present if one.kind == "guard" and values[one.name] < one.fires_below]
    if fired:
        guard = min(fired, key=lambda one: (one.guard_value, one.name))
        parts = dict.fromkeys(parts, 0.0) | {f"guard.{guard.name}": guard.guard_value}
        return Reward(guard.guard_value, parts, guard.name)
    return Reward(min(1.0, round(sum(parts.values()), DIGITS)), parts, milestone_weights=weights)


def paid_weights(evaluation: Evaluation, share: float) -> dict[str, float]:
    """Milestone → its part of what the environment pays: all weights scaled down together where they sum to more than `share` (D5)."""
    weights = {name: weight for name, value in evaluation.milestone_weights.items() if (weight := _weight(value)) > 0}
    scale = min(1.0, share / sum(weights.values())) if weights else 0.0
    return {name: weight * scale for name, weight in weights.items()}


def _tier(kind: str, room: float, present: Sequence[EvaluatorConfig], values: Mapping[str, float]) -> dict[str, float]:
    """Component → pay; weights of one kind sum to at most 1 (checked with the configuration), so this is at most `room`."""
    return {f"{kind}.{one.name}": room * one.weight * values[one.name] for one in present if one.kind == kind}


def _weight(value: float) -> float:
    """A milestone's weight in [0, 1]; what is no number weighs nothing."""
    return min(1.0, max(0.0, value)) if math.isfinite(value) else 0.0


def is_success(
    evaluation: Evaluation,
    config: TrajprocConfig,
    evaluators: Sequence[EvaluatorConfig] = (),
    values: Mapping[str, float] | None = None,
) -> bool:
    """Verified success: the environment's outcome; where that does not count, every rule evaluator's full score. Never against a guard."""
    values = values or {}
    if not evaluation.valid or evaluation.placeholder:
        return False
    present = [one for one in evaluators if one.name in values]
    if any(one.kind == "guard" and values[one.name] < one.fires_below for one in present):
        return False
    rules = [one for one in present if one.kind == "rule"]
    if config.outcome_counts or not rules:
        return evaluation.outcome >= SUCCESS_OUTCOME
    return all(values[one.name] >= 1.0 - EPSILON for one in rules)

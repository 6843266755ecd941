"""Facts about rewards that are given beside the environment's own evaluation (D4)."""

from typing import Any, Literal

import msgspec

EvaluatorKind = Literal["guard", "rule", "learned", "dense"]


class RewardScored(msgspec.Struct, frozen=True, kw_only=True, tag="reward.scored"):
    """What one configured evaluator said of one sample, or that it could not be had inside its budget (B4)."""

    sample_id: str
    execution_id: str
    group_id: str
    attempt: int
    task_type: str
    evaluator: str
    kind: EvaluatorKind
    value: float | None
    """In [0, 1]; None when `valid` is False: a failed evaluation is never a zero."""
    valid: bool
    partial: bool
    """The execution had been cut short; what it left behind was judged."""
    tries: int
    took_s: float
    """From the first try to the last word, waiting between tries included."""
    at_s: float
    evidence: dict[str, Any] = {}
    looked_at: list[str] = []
    detail: str = ""
    """For people: what went wrong at the last try, bounded and without the token."""
    traceparent: str = ""


class RewardWeighed(msgspec.Struct, frozen=True, kw_only=True, tag="reward.weighed"):
    """What a learned evaluator's score weighs from here on, by how far people agree with it (D8): groups judged after this fact."""

    evaluator: str
    weight: float
    """Instead of the configured one, at most that."""
    share: float
    """Of the configured weight, in [0, 1]."""
    agreement: float
    """Share of pairs that it orders as people do."""
    low: float
    """Lower bound of its 95 % interval, which `share` follows from."""
    pairs: int
    at_s: float

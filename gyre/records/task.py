"""What is to be done, and its hand-over to the rollout service."""

from typing import Any, Literal

import msgspec

Purpose = Literal["train", "evaluation"]

TRAINED_TEMPERATURES = (1e-4, 1e4)
"""Of tasks that are trained. Outside, the trainer cannot take log-probabilities of what was drawn."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds of one execution; reaching one is an ordinary ending, scored on what was left behind (B4)."""

    wall_s: float
    """Wall clock from the environment's start."""
    turns_max: int
    """Model calls."""
    context_tokens_max: int
    """Tokens of the longest prompt plus its output."""
    output_tokens_max: int
    """Sampled tokens of one call."""
    tokens_max: int = 0
    """Sampled tokens of all its calls together; 0: no bound but the others."""
    calls_max: int = 0
    """Model calls begun, those too that were abandoned or asked again; 0: no bound but turns_max."""
    concurrency_max: int = 0
    """Model calls at once; more are answered 429. 0: the gateway's own bound."""


class TaskSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One task as submitted: a query that is sampled `group_size` times (N)."""

    task_id: str
    task_type: str
    environment: str
    """Name under which a custom environment attaches to the rollout service."""
    seed: int
    limits: Limits
    payload: dict[str, Any] = {}
    tenant: str = "default"
    purpose: Purpose = "train"
    group_size: int = 1
    temperature: float = 1.0
    top_p: float = 1.0


class TaskDispatched(msgspec.Struct, frozen=True, kw_only=True, tag="task.dispatched"):
    """Work-queue message: one execution to be run. Unacknowledged while it runs; its redelivery is the next attempt."""

    execution_id: str
    group_id: str
    member: int
    """Index within the group, 0 … N−1."""
    task: TaskSpec
    tier: str
    policy_version: int
    """v_d: optimizer steps done when the group was dispatched (A5)."""
    seed: int
    """Sampling seed of this execution, from run seed, group and member."""
    attempt_base: int = 0
    """Attempt number = attempt_base + delivery count, so a re-dispatched execution fences everything before (style: fenced attempts)."""
    fingerprint: str = ""
    """Fingerprint of the resolved configuration (C7)."""
    dispatched_at_s: float = 0.0

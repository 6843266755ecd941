"""Facts about groups and executions, from submission to their ending."""

from typing import Any, Literal

import msgspec

from gyre.records.task import Purpose, TaskSpec

Ending = Literal["completed", "timed_out", "failed", "voided"]


class RunStarted(msgspec.Struct, frozen=True, kw_only=True, tag="run.started"):
    """Training begins (or goes on): the scheduler may open bursts until `steps` optimizer steps are done."""

    steps: int
    fingerprint: str
    at_s: float


class GroupSubmitted(msgspec.Struct, frozen=True, kw_only=True, tag="group.submitted"):
    """A task was accepted into the scheduler's queue."""

    group_id: str
    task: TaskSpec
    tier: str
    at_s: float


class GroupDispatched(msgspec.Struct, frozen=True, kw_only=True, tag="group.dispatched"):
    """All N executions of a group were handed to the work queue at one boundary (A4)."""

    group_id: str
    execution_ids: list[str]
    task_type: str
    tenant: str
    purpose: Purpose
    tier: str
    policy_version: int
    queue_wait_s: float
    promotions: int
    at_s: float
    attempt_base: int = 0
    fingerprint: str = ""
    """Fingerprint of the configuration that dispatched it (C7); empty: the one of `RunStarted`."""


class ExecutionLeased(msgspec.Struct, frozen=True, kw_only=True, tag="execution.leased"):
    """A rollout gateway took the execution; from here on only this attempt's words count."""

    execution_id: str
    group_id: str
    attempt: int
    holder: str
    at_s: float


class ExecutionStarted(msgspec.Struct, frozen=True, kw_only=True, tag="execution.started"):
    """The environment instance is up: occupancy starts (C6), and the reproducibility four are known (C11)."""

    execution_id: str
    group_id: str
    attempt: int
    environment: str
    image_digest: str
    seed: int
    tool_versions: dict[str, str]
    dependency_snapshot: str
    at_s: float
    is_replay: bool = False
    """It goes on from a snapshot of an earlier attempt's environment, and not in a new one (C3)."""


Command = Literal["suspend", "resume", "void", "release", "truncate"]


class ExecutionCommanded(msgspec.Struct, frozen=True, kw_only=True, tag="execution.commanded"):
    """Somebody wants an execution suspended, resumed, voided, given out again as a new attempt (`release`), or ended where it stands and scored on
    what it left behind (`truncate`) (C2, C5). The gateway carries it out."""

    execution_id: str
    group_id: str
    ordinal: int
    """Counts the commands of this execution, from 1."""
    command: Command
    by: str
    reason: str
    at_s: float


class ExecutionSuspended(msgspec.Struct, frozen=True, kw_only=True, tag="execution.suspended"):
    """Its calls wait from here on; it keeps its environment and its attempt, and counts as unfinished."""

    execution_id: str
    group_id: str
    attempt: int
    ordinal: int
    """Of the command that this carries out."""
    at_s: float


class ExecutionResumed(msgspec.Struct, frozen=True, kw_only=True, tag="execution.resumed"):
    """Its calls go on."""

    execution_id: str
    group_id: str
    attempt: int
    ordinal: int
    at_s: float


class Evaluation(msgspec.Struct, frozen=True, kw_only=True):
    """What the evaluator found (B4, D5). `valid` False: the evaluation failed after its retries; never a zero."""

    outcome: float
    valid: bool
    milestones: dict[str, bool] = {}
    milestone_weights: dict[str, float] = {}
    milestone_turns: dict[str, int] = {}
    """Milestone → model calls after which it was first verified (D3), 0: it held from the start. Empty where the environment is not asked."""
    evidence: dict[str, Any] = {}
    tries: int = 1
    placeholder: bool = False
    """Nothing to evaluate at all (the environment never came up): outcome 0, marked."""


class ExecutionEnded(msgspec.Struct, frozen=True, kw_only=True, tag="execution.ended"):
    """The ending of one attempt. `failed` is an ending of its own and never a reward (NeMo-RL#3470)."""

    execution_id: str
    group_id: str
    attempt: int
    task_type: str
    tenant: str
    purpose: Purpose
    ending: Ending
    reason: str
    """Why: `submitted`, `turns`, `wall`, `context`, `truncated` (its batch's wait was over), `environment_error`,
    `environment_hung`, `environment_invalid`, `attempts_exhausted`, `voided`, `stopped` (the agent made no tool call)."""
    detail: str = ""
    """For people: the error's text, bounded and redacted."""
    evaluation: Evaluation | None = None
    turns: int = 0
    """Model calls recorded at the gateway, the book of turns (C6)."""
    tokens_sampled: int = 0
    calls: int = 0
    """Call records on the bus for this attempt; the trajectory processor waits until it has them all."""
    external_calls: int = 0
    """Tool calls carried out by the environment (C6)."""
    occupancy_s: float = 0.0
    policy_version: int = 0
    """v_d of the execution."""
    leased_at_s: float = 0.0
    started_at_s: float = 0.0
    at_s: float = 0.0
    model_wait_s: float = 0.0
    """Seconds its calls waited for a cell."""
    traceparent: str = ""
    quota_left: int = -1
    """External calls still allowed when it ended (C6); −1 where no quota is set."""
    snapshots: int = 0
    """Ordinal of the newest snapshot its environment took (C4); 0 where it takes none."""
    rollback_turns: int = 0
    """Turns lost by going back to snapshots (C4)."""

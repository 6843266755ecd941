"""Facts about optimizer steps and the micro-steps they are made of."""

import msgspec

from gyre.records.arrays import Row


class StepOpened(msgspec.Struct, frozen=True, kw_only=True, tag="step.opened"):
    """The core has weights of version `step` and an empty gradient: micro-steps of this step may be sent."""

    step: int
    burst: int
    at_s: float


class BatchExtended(msgspec.Struct, frozen=True, kw_only=True, tag="batch.extended"):
    """A group was taken into the open batch; its micro-steps are on the work queue.

    The trajectory processor's own decision, durable, so that its restart repeats nothing.
    """

    step: int
    group_id: str
    sample_ids: list[str]
    """Executions that count in the batch's divisor."""
    micro_ids: list[str]
    turns: int
    turns_total: int
    """Accumulated turns of the batch after this group (C5)."""
    at_s: float
    untrained_targets: int = 0
    """Chosen target tokens of those of `sample_ids` that have no micro-step (no gradient)."""
    untrained_sequences: int = 0
    """Model calls that these tokens are of."""


class BatchOverdue(msgspec.Struct, frozen=True, kw_only=True, tag="batch.overdue"):
    """The wait of a batch that has begun is over, and executions have not arrived: what becomes of them, by policy (C5).

    The scheduler commands what the policy says: `truncate` those that run (and void those that never started), or `drop` (void) them all.
    """

    step: int
    ordinal: int
    """From 1; with policy `wait` it is said again after each further wait."""
    policy: str
    """trajproc.missing: `later`, `wait`, `truncate` or `drop`."""
    execution_ids: list[str]
    """Unfinished members of the groups that the batch still waits for, oldest dispatch first."""
    turns: int
    turns_target: int
    waited_s: float
    """Since the batch took its first group."""
    at_s: float


class BatchClosed(msgspec.Struct, frozen=True, kw_only=True, tag="batch.closed"):
    """The batch of a step is complete: by turns, or by the explicit wait policy (C5)."""

    step: int
    cause: str
    """`turns`, `wait` or `exhausted` (nothing outstanding is left)."""
    turns: int
    turns_target: int
    groups: list[str]
    sample_ids: list[str]
    """Samples that the batch's micro-steps train; those of groups without gradient are dropped and stand in the divisor only."""
    micro_ids: list[str]
    divisor: int
    """Executions in the batch, those without gradient too: the mean over executions divides by this (B7); at least 1."""
    truncated_share: float
    failed_share: dict[str, float]
    """Task type → share of failed samples kept (C10)."""
    no_gradient: bool
    staleness_mean: float
    """Mean over all groups consumed by the batch of (step − v_d) (A5)."""
    staleness_max: int
    at_s: float
    untrained_targets: int = 0
    """What executions without gradient add to a mean over target tokens: they have no micro-step that would report them."""
    untrained_sequences: int = 0
    """And to a mean over model calls."""
    origins: dict[str, int] = {}
    """Executions of the divisor by SampleReady.origin; `replay` and `resample` are never in one batch (C3)."""
    elites: list[str] = []
    """Samples of the elite store whose micro-steps are trained again beside the batch's own: in `micro_ids` and `divisor`, in nothing else (D9)."""


class MicroStep(msgspec.Struct, frozen=True, kw_only=True, tag="micro.ready"):
    """Work-queue message: rows of whole samples of one group, claimed by one training cell, acknowledged after the update."""

    micro_id: str
    step: int
    group_id: str
    rows: list[Row]
    tokens: int
    at_s: float
    blob: str = ""
    """Digest in the run's blob store of the rows (`decode_rows`), where they are over the bus's payload; `rows` is then empty."""
    is_elite: bool = False
    """A sample of the elite store, trained again: always with truncated importance weights by token (D9)."""
    sample_ids: list[str] = []
    """Whose rows lie in the blob store: what is lost with them where they cannot be had."""


class StepJoined(msgspec.Struct, frozen=True, kw_only=True, tag="step.joined"):
    """A satellite joined the step that is being trained (A8)."""

    step: int
    cell: str
    mid_batch: bool
    """True when micro-steps of this step had been computed before it joined."""
    version: int
    checksum: str
    at_s: float


class StepUpdated(msgspec.Struct, frozen=True, kw_only=True, tag="step.updated"):
    """The optimizer has stepped: policy version is now step + 1."""

    step: int
    version: int
    burst: int
    sample_ids: list[str]
    """Exactly the samples whose gradient went into this update."""
    micro_cells: dict[str, str]
    """Micro-step → cell that computed it."""
    metrics: dict[str, float]
    """loss, grad_norm, lr, tokens, targets, is_clipped_share, kl_k1, kl_k3, ess, logprob_gap, …"""
    opened_at_s: float
    at_s: float
    sample_metrics: dict[str, dict[str, float]] = {}
    """Sample → what the trainer saw of it: mean ratio, clipped share, loss share."""
    set_aside: dict[str, str] = {}
    """Sample of the batch, or replay, → why it could not be trained: rows that contradict each other or the model, log-probabilities or a gradient
    that are no numbers, more memory than there is. It is in neither `sample_ids` nor the divisor."""


class AlarmRaised(msgspec.Struct, frozen=True, kw_only=True, tag="alarm.raised"):
    """Something an operator must see: `staleness_bound`, `no_gradient`, `starvation`, `poison` …"""

    kind: str
    message: str
    service: str
    at_s: float
    values: dict[str, float] = {}

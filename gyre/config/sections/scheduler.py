"""Dispatch and the moving of cells."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from gyre.config.sections.base import NotNegative, Positive, Seconds, Section


class TierConfig(Section):
    """A duration tier (C1)."""

    name: Annotated[str, Meta(pattern="^[A-Za-z0-9_-]{1,32}$")] = "all"
    """Name of the tier, also the key of its subject on the bus."""
    predicted_s_max: Seconds = 1e9
    """Tasks predicted to last at most this long belong here (the first tier that fits)."""
    concurrency_max: Positive = 1_000_000
    """Executions of this tier that may be unfinished at once."""
    queue_max: Positive = 100_000
    """Groups that may wait in this tier; beyond it, submitters are told to wait."""


class SchedulerConfig(Section):
    """Dispatch and the moving of cells (A1–A5, C1)."""

    mode: Literal["elastic", "elastic_plus", "async", "colocate", "hybrid_switch"] = "elastic"
    """Scheduling policy (A9). elastic: one cell at a time by the waterlevel. elastic_plus: the same with a planner that measures. async: a fixed
    split. colocate: the whole pool switches at once. hybrid_switch: trainers are lent to rollout at a step's end while that pays."""
    cells: Annotated[int, Meta(ge=1, le=1024)] = 2
    """K: all cells, in order; cell 0 is the core. 1 means one cell that does both in turn."""
    training_cells: NotNegative = 0
    """Cells, from the first on, that always train: the fixed split of `async`, and 0 in every other mode."""
    standalone_cells: NotNegative = 0
    """S: cells, from the last on, that never train. In `async` every cell that does not train."""
    streaming: bool = True
    """Whether training starts on the first ready group (A7), or only when the step's batch is whole."""
    dispatch: Literal["boundary", "continuous"] = "boundary"
    """boundary: all at the publish that ends a burst (A4). continuous: one group sent whenever one is consumed, (φ+μ)·B always outstanding."""
    release_share: Annotated[float, Meta(gt=0.0, le=1.0)] = 1.0
    """ρ: a cell goes to training when the unfinished executions fill at most this share of what remains. 1 is the waterlevel rule, lower is later."""
    plan_every_bursts: NotNegative = 4
    """elastic_plus: bursts between two plans. It begins as `elastic` does; 0 never plans, keeps the settings given here and moves cells both ways."""
    plan_measure: Literal["dispatch", "token"] = "dispatch"
    """elastic_plus: of which staleness a plan keeps the mean. dispatch: the law's, exactly. token: what these settings show by the versions of
    the sampled tokens, which are fresher than dispatch where weights reach running executions, so that a plan may dispatch deeper."""
    cell_capacity: Positive = 64
    """C_e: executions one cell can serve at a time. Too large: cells never leave rollout early; too small: they queue."""
    groups_per_step: Positive = 8
    """B: groups of one optimizer step, as planned. Dispatch follows what steps really consume (docs/staleness.md)."""
    group_size: Annotated[int, Meta(ge=1, le=1024)] = 8
    """N: executions of one group; the baseline is their mean, so at least 2 to learn anything."""
    steps_per_publish: Positive = 1
    """μ: optimizer steps of one burst. More: fewer publishes, more staleness, (μ−1)/2 of it, 3(μ−1)/2 with continuous dispatch."""
    extra_depth_steps: Annotated[float, Meta(ge=0)] = 0.5
    """φ: steps of work dispatched beyond a burst, which keeps rollout busy while training; adds φ to the mean staleness."""
    tiers: list[TierConfig] = msgspec.field(default_factory=lambda: [TierConfig()])
    """Duration tiers, shortest first."""
    order: Literal["longest_first", "submitted"] = "longest_first"
    """Order of a tier's queue at a boundary: longest predicted first (the last group decides the burst), or as submitted. Predictions are
    measured seconds, so only `submitted` dispatches the same groups in every run of one seed."""
    aging_s: Annotated[float, Meta(ge=1e-9)] = 600.0
    """Waiting this long raises a group's priority by one tier (aging promotion, C1)."""
    starvation_s: Seconds = 3600.0
    """A group that waited this long raises an alarm."""
    tenant_weights: dict[str, Annotated[float, Meta(ge=1e-6, le=1e6)]] = {}
    """Tenant → its share of dispatched work relative to the others' while they compete; 1 for a tenant that is not named. Where any is
    set, the shares also bound what each tenant, or all that are not named together, may have waiting in a tier; empty: anybody may fill it."""
    evaluation_concurrency_max: Positive = 1_024
    """Executions of evaluation tasks that may be unfinished at once, and, while there is something to train, that are sent between two publishes.
    Evaluations are sent when they come, so this is what they can hold a step up by; too small: a large evaluation takes turns."""
    evaluations_max: Positive = 10_000
    """Executions of evaluation tasks that may wait or be unfinished; beyond it, submitters are told to wait. With `tenant_weights` each tenant
    has its share of them."""
    anneal_steps: NotNegative = 0
    """Optimizer steps over which the temperature of tasks to be trained falls (or rises) to `anneal_to` times what they ask for, along a half cosine
    (D7): an execution's is that of the version it was dispatched at. 0: it stays as it is. Evaluations never change."""
    anneal_to: Annotated[float, Meta(gt=0.0, le=100.0)] = 1.0
    """What the temperature is multiplied by from step `anneal_steps` on."""
    snapshot_facts: Positive = 20_000
    """Facts folded between two snapshots of the scheduler's state: what a restart has to fold again at most. Fewer: more time spent on encoding."""

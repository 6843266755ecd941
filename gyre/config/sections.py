"""Every setting there is. Each field's docstring gives meaning, unit, why this default, and what the extremes do."""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

Positive = Annotated[int, Meta(ge=1)]
NotNegative = Annotated[int, Meta(ge=0)]
Share = Annotated[float, Meta(ge=0.0, le=1.0)]
Seconds = Annotated[float, Meta(gt=0.0)]


class _Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class RunConfig(_Section):
    """What is run."""

    name: Annotated[str, Meta(pattern="^[A-Za-z0-9_-]{1,64}$")] = "run"
    """Names the run on the bus and in the books; letters, digits, - and _."""
    directory: str = "runs"
    """Where the run's folder is made (data, logs, keys, checkpoints), relative to the working directory."""
    seed: int = 1
    """Everything random follows from it: tasks, sampling, packing, initial weights."""
    steps: Positive = 40
    """Optimizer steps of the whole run."""


class ModelConfig(_Section):
    """The policy to be trained."""

    path: str = ""
    """A Hugging Face directory (config, weights, tokenizer, chat template). Empty: it is made by `recipe`."""
    recipe: list[str] = []
    """Command that makes the model directory; `{out}` and `{seed}` are filled in, `{python}` is this interpreter."""
    demonstrations: list[str] = []
    """Command that writes demonstrations as JSON lines for the warm start (D12), `{out}`, `{seed}`, `{python}` as above; empty: no warm start."""
    warmstart_s: Seconds = 60.0
    """Upper bound of the warm start's wall clock; it normally ends earlier, by `warmstart_epochs`."""
    warmstart_epochs: Annotated[float, Meta(gt=0)] = 1.0
    """Passes over the demonstrations."""
    warmstart_lr: Annotated[float, Meta(gt=0)] = 2e-3
    """Peak learning rate of the warm start."""
    warmstart_tokens: Positive = 4096
    """Tokens of one warm-start batch."""


class NetworkConfig(_Section):
    """Where services listen."""

    host: str = "127.0.0.1"
    """Address to bind. Loopback: nothing outside this machine can reach the run."""
    base_port: Annotated[int, Meta(ge=0, le=65000)] = 0
    """First of the consecutive ports the services take; 0 picks free ones, so that runs can stand side by side."""


class TierConfig(_Section):
    """A duration tier (C1)."""

    name: Annotated[str, Meta(pattern="^[A-Za-z0-9_-]{1,32}$")] = "all"
    """Name of the tier, also the key of its subject on the bus."""
    predicted_s_max: Seconds = 1e9
    """Tasks predicted to last at most this long belong here (the first tier that fits)."""
    concurrency_max: Positive = 1_000_000
    """Executions of this tier that may be unfinished at once."""
    queue_max: Positive = 100_000
    """Groups that may wait in this tier; beyond it, submitters are told to wait."""


class SchedulerConfig(_Section):
    """Dispatch and the moving of cells (A1–A5, C1)."""

    mode: Literal["elastic", "elastic_plus", "async", "colocate", "hybrid_switch"] = "elastic"
    """Scheduling policy (A9). elastic: one cell at a time by the waterlevel. elastic_plus: the same with a planner that measures. async: a fixed
    split. colocate: the whole pool switches at once. hybrid_switch: trainers are lent to rollout at a step's end while that pays."""
    cells: Positive = 2
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
    """elastic_plus: bursts between two plans; 0 never plans and keeps the settings given here."""
    cell_capacity: Positive = 64
    """C_e: executions one cell can serve at a time. Too large: cells never leave rollout early; too small: they queue."""
    groups_per_step: Positive = 8
    """B: groups of one optimizer step, as planned. Dispatch follows what steps really consume (docs/staleness.md)."""
    group_size: Positive = 8
    """N: executions of one group; the baseline is their mean, so at least 2 to learn anything."""
    steps_per_publish: Positive = 1
    """μ: optimizer steps of one burst. More: fewer publishes, more staleness, (μ−1)/2 of it."""
    extra_depth_steps: Annotated[float, Meta(ge=0)] = 0.5
    """φ: steps of work dispatched beyond a burst, which keeps rollout busy while training; adds φ to the mean staleness."""
    tiers: list[TierConfig] = msgspec.field(default_factory=lambda: [TierConfig()])
    """Duration tiers, shortest first."""
    order: Literal["longest_first", "submitted"] = "longest_first"
    """Order of a tier's queue at a boundary: longest predicted first (the last group decides the burst), or as submitted. Predictions are
    measured seconds, so only `submitted` dispatches the same groups in every run of one seed."""
    aging_s: Seconds = 600.0
    """Waiting this long raises a group's priority by one tier (aging promotion, C1)."""
    starvation_s: Seconds = 3600.0
    """A group that waited this long raises an alarm."""
    tenant_weights: dict[str, Annotated[float, Meta(gt=0.0)]] = {}
    """Tenant → its share of dispatched work relative to the others' while they compete; 1 for a tenant that is not named. Where any is
    set, the shares also bound what each tenant may have waiting in a tier; empty: anybody may fill it."""
    snapshot_facts: Positive = 20_000
    """Facts folded between two snapshots of the scheduler's state: what a restart has to fold again at most. Fewer: more time spent on encoding."""


class RolloutConfig(_Section):
    """Gateway, leases, engines."""

    lease_s: Seconds = 10.0
    """An execution whose holder is silent for this long is given out again as the next attempt."""
    attempts_max: Positive = 5
    """Attempts of one execution before it ends as failed."""
    request_bytes_max: Positive = 8 * 1024 * 1024
    """Largest body of one model call; larger ones are answered 413."""
    observation_bytes_max: Positive = 64 * 1024
    """Largest tool result that an environment may show the model; the rest is cut, and said so."""
    slots: Positive = 32
    """Calls one engine decodes at once."""
    context_max: Positive = 1024
    """Tokens of the longest context (prompt and output) an engine serves."""
    threads: Positive = 1
    """CPU threads of one engine."""
    device: str = "cpu"
    """Where the embedded engine runs, in torch's words."""


class TrajprocConfig(_Section):
    """From executions to batches (B3–B7, C5, C8–C10)."""

    turns_per_step: Positive = 320
    """A batch is complete when its executions have made this many model calls (C5); plan it as B·N·turns of one execution."""
    wait_s: Seconds = 3600.0
    """How long a batch waits for more groups once it has begun; then it closes with what is there (cause `wait`)."""
    paths_max: Positive = 5
    """J_max: candidate paths trained of one execution (B5)."""
    advantage: Literal["group", "group_std", "leave_one_out", "zero"] = "group"
    """Baseline by execution within its group; `zero` gives every execution advantage 0 (a control that must not learn)."""
    milestone_share: Share = 0.3
    """Part of the total reward that milestones can pay; the outcome pays the rest (D5)."""
    age_steps_max: Positive = 8
    """Hard cap on a sample's age (step − v_d) when it is trained; older ones are dropped and counted (C8)."""
    truncated_share_max: Share = 0.5
    """Line for the share of timed-out (truncated) executions in a batch; what exceeds it is dropped and counted, reason `truncated` (C5)."""
    failed_share_max: Share = 1.0
    """Share of unsuccessful samples kept in a batch for a task type that `failed_share_by_type` does not name (C10)."""
    failed_share_by_type: dict[str, Share] = {}
    """Task type → share of unsuccessful samples kept."""
    no_gradient_alarm: Positive = 2
    """Batches without any gradient in a row that raise an alarm (C10)."""
    micro_tokens: Positive = 4096
    """Token budget of one micro-step."""


class TrainerConfig(_Section):
    """Optimizer, objective, publishing (A2, A7, A8, C8)."""

    objective: Literal["gspo", "grpo", "cispo"] = "cispo"
    """Policy objective. cispo: truncated importance weight on the log-probability, keeps every token's gradient; gspo: sequence ratio clip."""
    lr: Annotated[float, Meta(gt=0)] = 1e-4
    """Learning rate of AdamW."""
    lr_warmup_steps: NotNegative = 0
    """Steps over which the learning rate rises linearly."""
    lr_final_share: Share = 1.0
    """Share of `lr` that is left at the run's last step; it falls linearly after the warm-up. 1 keeps it constant."""
    weight_decay: Annotated[float, Meta(ge=0)] = 0.0
    """Decoupled weight decay."""
    betas: tuple[float, float] = (0.9, 0.95)
    """AdamW's running-average coefficients."""
    grad_norm_max: Annotated[float, Meta(gt=0)] = 1.0
    """Gradients are clipped to this norm."""
    ratio_max: Annotated[float, Meta(gt=0)] = 5.0
    """Cap of the importance weight of a token (truncated importance sampling)."""
    clip_low: Annotated[float, Meta(ge=0)] = 0.005
    """Ratio clip below 1 (gspo, grpo)."""
    clip_high: Annotated[float, Meta(ge=0)] = 0.005
    """Ratio clip above 1 (gspo, grpo)."""
    veto_ratio: Annotated[float, Meta(ge=0)] = 1e-4
    """A sample with any token ratio below this gives no gradient; 0 turns the veto off."""
    threads: Positive = 1
    """CPU threads of one trainer cell, and of the warm start. More than the cores that are free make small models many times slower."""
    device: str = "cpu"
    """Where a trainer cell computes."""
    claim_s: Seconds = 10.0
    """A claimed micro-step whose cell is silent for this long goes to another cell."""
    checkpoints_kept: Positive = 3
    """Newest checkpoints that are kept on disk."""


class LedgerConfig(_Section):
    """Books and traces (C6–C14)."""

    database: str = ""
    """SQLAlchemy URL; empty: SQLite in the run's folder."""
    traces: bool = True
    """Record OpenTelemetry traces (every process sends OTLP to the ledger)."""
    otlp_endpoint: str = ""
    """Another OTLP gRPC collector that traces go to instead of the ledger, host:port."""


class EnvironmentConfig(_Section):
    """A process that serves a custom environment, started and stopped with the run."""

    name: str = "environment"
    """Name under which it attaches and by which tasks ask for it."""
    command: list[str] = []
    """Command; `{python}` is this interpreter. It finds the rollout service through GYRE_ROLLOUT_ADDRESS and GYRE_ENVIRONMENT_KEY."""
    slots: Positive = 64
    """Executions one process runs at once."""
    processes: Positive = 1
    """How many such processes."""


class TaskConfig(_Section):
    """Where tasks come from, and the limits of their executions."""

    source: str = ""
    """`package.module:function`, called as function(split, count, seed) with split `train` or `heldout`; yields gyre.env.Task."""
    environment: str = "environment"
    """Environment that runs them."""
    wall_s: Seconds = 60.0
    """Wall clock of one execution; at its end the work left behind is scored (B4)."""
    turns_max: Positive = 10
    """Model calls of one execution."""
    context_tokens_max: Positive = 1024
    """Longest context of one execution."""
    output_tokens_max: Positive = 64
    """Sampled tokens of one call."""
    temperature: Annotated[float, Meta(ge=0)] = 1.0
    """Sampling temperature."""
    top_p: Annotated[float, Meta(gt=0, le=1)] = 1.0
    """Nucleus sampling; 1 keeps the whole distribution, which is what the loss assumes."""


class EvaluationConfig(_Section):
    """Success on held-out tasks, before and after."""

    tasks: NotNegative = 120
    """Held-out tasks of one evaluation; 0 leaves evaluations out. The standard error at success s is √(s(1−s)/tasks)."""


class VariantConfig(_Section):
    """One configuration of a comparison (dry run): the run's own, with other scheduler settings."""

    name: Annotated[str, Meta(pattern="^[A-Za-z0-9_-]{1,32}$")]
    """Names it in the table and its run's folder."""
    role: Literal["shown", "ours", "paper", "tuned"] = "shown"
    """ours: what the others are compared with, exactly one. paper: a baseline as published, by its mode. tuned: a baseline at its best. shown: in
    the table only."""
    scheduler: dict[str, Any] = {}
    """Settings of [scheduler] that differ."""


class EmulationConfig(_Section):
    """What a dry run pretends: work, speed and costs in the workload's own seconds. Training never reads it."""

    time_scale: Annotated[float, Meta(gt=0.0)] = 360.0
    """Seconds of the workload that pass in one second: 360 is an hour in ten. Too large and this machine's own overheads show in the results."""
    work_median_s: Seconds = 4000.0
    """Median work of one execution, alone on a cell; lognormal."""
    work_sigma: Annotated[float, Meta(ge=0.0)] = 0.5
    """Standard deviation of the logarithm of the work."""
    group_share: Share = 0.35
    """Share of the log-variance that the executions of one group have in common."""
    environment_share: Annotated[float, Meta(ge=0.0, lt=1.0)] = 0.0
    """Part of an execution's time that passes in its environment, where it takes no slot; as of an execution alone on a cell."""
    calls: NotNegative = 0
    """Model calls of one execution; 0: as many as `trajproc.turns_per_step` expects of B·N executions."""
    load_curve: Literal["hyperbolic", "power"] = "hyperbolic"
    """Speed of a cell by its load x = calls running / slots. hyperbolic: 1/(1 + a·x). power: min(1, (a/x)^p)."""
    load_a: Annotated[float, Meta(ge=0.0)] = 0.675
    """a of the load curve."""
    load_p: Annotated[float, Meta(ge=0.0)] = 0.8
    """p of the load curve `power`."""
    group_training_s: Seconds = 5400.0
    """Time one cell needs to train one group, its members' gradients one after the other."""
    into_training_s: Annotated[float, Meta(ge=0.0)] = 8.52
    """Cost of a role change into training (the paper's)."""
    into_rollout_s: Annotated[float, Meta(ge=0.0)] = 3.46
    """Cost of a role change back (the paper's)."""
    move_s: Annotated[float, Meta(ge=0.0)] = 30.0
    """Cost of a call that goes on at another cell: its context is computed again."""
    variants: list[VariantConfig] = []
    """What a comparison runs; empty: this configuration alone."""
    variants_at_once: Positive = 1
    """Variants that run side by side, each on a bus and services of its own (some 0.9 GB). More are done sooner and disturb each other: what one
    dispatches at a boundary keeps two cores busy for half a second."""


class Config(_Section):
    """A whole run."""

    run: RunConfig = RunConfig()
    """What is run."""
    model: ModelConfig = ModelConfig()
    """The policy to be trained."""
    network: NetworkConfig = NetworkConfig()
    """Where services listen."""
    scheduler: SchedulerConfig = SchedulerConfig()
    """Dispatch and cells."""
    rollout: RolloutConfig = RolloutConfig()
    """Gateway and engines."""
    trajproc: TrajprocConfig = TrajprocConfig()
    """Trajectories and batches."""
    trainer: TrainerConfig = TrainerConfig()
    """Optimizer."""
    ledger: LedgerConfig = LedgerConfig()
    """Books and traces."""
    tasks: TaskConfig = TaskConfig()
    """Where tasks come from, and their limits."""
    evaluation: EvaluationConfig = EvaluationConfig()
    """Held-out success."""
    environments: list[EnvironmentConfig] = []
    """Environment processes started with the run."""
    emulation: EmulationConfig = EmulationConfig()
    """What `gyre dry-run` pretends."""

"""What a dry run pretends and compares."""

from typing import Annotated, Any, Literal

from msgspec import Meta

from gyre.config.sections.base import NotNegative, Positive, Section, Share

Work = Annotated[float, Meta(gt=0.0, le=31_557_600.0)]
"""Seconds, to a year."""
Cost = Annotated[float, Meta(ge=0.0, le=86_400.0)]
"""Seconds, to a day: what costs more is no change of role."""


class VariantConfig(Section):
    """One configuration of a comparison (dry run): the run's own, with other scheduler settings."""

    name: Annotated[str, Meta(pattern="^[A-Za-z0-9_-]{1,32}$")]
    """Names it in the table and its run's folder."""
    role: Literal["shown", "ours", "paper", "tuned"] = "shown"
    """ours: what the others are compared with, exactly one. paper: a baseline as published, by its mode. tuned: a baseline at its best. shown: in
    the table only."""
    scheduler: dict[str, Any] = {}
    """Settings of [scheduler] that differ."""


class EmulationConfig(Section):
    """What a dry run pretends: work, speed and costs in the workload's own seconds. Training never reads it."""

    time_scale: Annotated[float, Meta(gt=0.0, le=1e9)] = 360.0
    """Seconds of the workload that pass in one second: 360 is an hour in ten. Too large and this machine's own overheads show in the results."""
    work_median_s: Work = 4000.0
    """Median work of one execution, alone on a cell; lognormal."""
    work_sigma: Annotated[float, Meta(ge=0.0, le=5.0)] = 0.5
    """Standard deviation of the logarithm of the work. Real agents' runs have .55 to 1.32."""
    group_share: Share = 0.35
    """Share of the log-variance that the executions of one group have in common."""
    environment_share: Annotated[float, Meta(ge=0.0, lt=1.0)] = 0.0
    """Part of an execution's time that passes in its environment, where it takes no slot; as of an execution alone on a cell."""
    calls: NotNegative = 0
    """Model calls of one execution; 0: as many as `trajproc.turns_per_step` expects of B·N executions."""
    load_curve: Literal["hyperbolic", "power"] = "hyperbolic"
    """Speed of a cell by its load x = calls running / slots. hyperbolic: 1/(1 + a·x). power: min(1, (a/x)^p)."""
    load_a: Annotated[float, Meta(ge=0.0, le=1e3)] = 0.675
    """a of the load curve."""
    load_p: Share = 0.8
    """p of the load curve `power`."""
    group_training_s: Work = 5400.0
    """Time one cell needs to train one group, its members' gradients one after the other."""
    into_training_s: Cost = 8.52
    """Cost of a role change into training (the paper's)."""
    into_rollout_s: Cost = 3.46
    """Cost of a role change back (the paper's)."""
    move_s: Cost = 30.0
    """Cost of a call that goes on at another cell: its context is computed again."""
    variants: list[VariantConfig] = []
    """What a comparison runs; empty: this configuration alone."""
    variants_at_once: Positive = 1
    """Variants that run side by side, each on a bus and services of its own (some 0.9 GB). More are done sooner and disturb each other: what one
    dispatches at a boundary keeps two cores busy for half a second."""

"""Optimizer, objective, publishing."""

from typing import Annotated, Literal

from msgspec import Meta

from gyre.config.sections.base import NotNegative, Positive, Seconds, Section, Share


class TrainerConfig(Section):
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

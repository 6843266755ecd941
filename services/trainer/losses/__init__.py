"""Policy objectives by name. Each is a pure function over tensors; corrections, norms and metrics stand beside them (docs/losses.md).

The order is the same for all: masks say which targets are kept; weights, objective and norm speak of those alone.
"""

from collections.abc import Callable

import torch

from gyre.config import TrainerConfig
from services.trainer.losses.aipo import aipo
from services.trainer.losses.cispo import cispo
from services.trainer.losses.corrections import all_of, importance_weights, masks
from services.trainer.losses.decoupled_ppo import decoupled_ppo, proximal
from services.trainer.losses.grpo import grpo
from services.trainer.losses.gspo import gspo
from services.trainer.losses.metrics import Sums, sample_sums
from services.trainer.losses.norms import shares
from services.trainer.losses.policy_gradient import policy_gradient
from services.trainer.losses.targets import Targets, TokenLoss, sum_by

CLIPS = {"gspo": (0.005, 0.005), "grpo": (0.2, 0.2), "decoupled_ppo": (0.2, 0.2)}
"""Each objective's own numbers, below and above 1, where the configuration gives 0: arXiv 2609.33848, PPO's (arXiv 1707.06347) and again PPO's."""


def _clips(config: TrainerConfig) -> tuple[float, float]:
    low, high = CLIPS[config.objective]
    return config.clip_low or low, config.clip_high or high


def _policy_gradient(logp_N: torch.Tensor, targets: Targets, config: TrainerConfig) -> TokenLoss:
    if not {"tis_token", "tis_sequence"} & set(config.corrections):
        return policy_gradient(logp_N, targets)
    return policy_gradient(logp_N, targets, importance_weights(logp_N - targets.behaviour_N, targets, config))


def _gspo(logp_N: torch.Tensor, targets: Targets, config: TrainerConfig) -> TokenLoss:
    weights = importance_weights(logp_N - targets.behaviour_N, targets, config)
    return gspo(logp_N, targets, weights, *_clips(config))


def _decoupled_ppo(logp_N: torch.Tensor, targets: Targets, config: TrainerConfig) -> TokenLoss:
    proximal_N = proximal(config.proximal, logp_N, targets)
    weights = importance_weights(proximal_N - targets.behaviour_N, targets, config)
    return decoupled_ppo(logp_N, targets, proximal_N, weights, *_clips(config))


OBJECTIVES: dict[str, Callable[[torch.Tensor, Targets, TrainerConfig], TokenLoss]] = {
    "policy_gradient": _policy_gradient,
    "cispo": lambda logp_N, targets, c: cispo(logp_N, targets, c.ratio_max),
    "aipo": lambda logp_N, targets, c: aipo(logp_N, targets, c.ratio_max),
    "grpo": lambda logp_N, targets, c: grpo(logp_N, targets, *_clips(c)),
    "gspo": _gspo,
    "decoupled_ppo": _decoupled_ppo,
}


def keep(logp_N: torch.Tensor, targets: Targets, config: TrainerConfig) -> torch.Tensor:
    """bool[N]: what masks, rejections and vetoes leave, which is what the norm's denominators count."""
    return all_of(masks(logp_N, targets, config), targets)


def counts(keep_N: torch.Tensor, targets: Targets) -> torch.Tensor:
    """float32[M]: kept targets of each sample."""
    return sum_by(targets.samples_N, keep_N.to(targets.behaviour_N), targets.samples)


def policy_loss(
    logp_N: torch.Tensor,
    targets: Targets,
    config: TrainerConfig,
    counts_M: torch.Tensor | None = None,
    told: Callable[[torch.Tensor, torch.Tensor, torch.Tensor], None] | None = None,
) -> tuple[torch.Tensor, list[Sums]]:
    """(loss, sums of each of the M samples): Σ over kept tokens of norm share · l_t, before the batch's divisor (B7).

    `counts_M`: kept targets of each whole sample, for the norm `execution`; needed where a sample's rows are not all in this forward.
    `told` is given float32[N] log-probabilities, bool[N] kept, bool[N] clipped.
    """
    found = masks(logp_N, targets, config)
    keep_N = all_of(found, targets)
    kept = targets.where(keep_N)
    loss = OBJECTIVES[config.objective](logp_N[keep_N], kept, config)
    shares_N = shares(config.norm, kept, counts(keep_N, targets) if counts_M is None else counts_M)
    loss = TokenLoss(shares_N * loss.loss_N, loss.clipped_N)
    with torch.no_grad():
        weights = importance_weights(logp_N[keep_N] - kept.behaviour_N, kept, config)
        detached = TokenLoss(loss.loss_N.detach(), loss.clipped_N)
        if told is not None:
            clipped_N = torch.zeros_like(keep_N).masked_scatter(keep_N, loss.clipped_N.bool())
            told(logp_N.detach(), keep_N, clipped_N)
        sums = sample_sums(logp_N.detach(), targets, found, keep_N, detached, weights)
    return loss.loss_N.sum(), sums

"""Policy objectives by name. Each is a pure function over tensors; corrections and metrics stand beside them."""

from collections.abc import Callable

import torch

from gyre.config import TrainerConfig
from services.trainer.losses.cispo import cispo
from services.trainer.losses.corrections import veto
from services.trainer.losses.grpo import grpo
from services.trainer.losses.gspo import gspo
from services.trainer.losses.metrics import Sums, row_sums
from services.trainer.losses.targets import Targets, TokenLoss

OBJECTIVES: dict[str, Callable[[torch.Tensor, Targets, TrainerConfig], TokenLoss]] = {
    "cispo": lambda logp_N, targets, c: cispo(logp_N, targets, c.ratio_max),
    "grpo": lambda logp_N, targets, c: grpo(logp_N, targets, c.clip_low, c.clip_high),
    "gspo": lambda logp_N, targets, c: gspo(logp_N, targets, c.clip_low, c.clip_high, c.ratio_max),
}


def policy_loss(logp_N: torch.Tensor, targets: Targets, config: TrainerConfig) -> tuple[torch.Tensor, list[Sums]]:
    """(loss, sums of each row): Σ_t weight_t · l_t over tokens that were not vetoed, before the batch divisor (B7)."""
    loss = OBJECTIVES[config.objective](logp_N, targets, config)
    keep_N = veto(logp_N.detach() - targets.behaviour_N, targets, config.veto_ratio)
    total = (targets.weights_N * torch.where(keep_N, loss.loss_N, 0.0)).sum()
    with torch.no_grad():
        detached = TokenLoss(loss.loss_N.detach(), loss.clipped_N)
        return total, row_sums(logp_N.detach(), detached, keep_N, targets)

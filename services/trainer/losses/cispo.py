"""CISPO: the truncated importance weight is a constant, so every token keeps its gradient (MiniMax-M1, arXiv 2506.13585, eq. 4–5)."""

import torch

from services.trainer.losses.corrections import truncated
from services.trainer.losses.targets import Targets, TokenLoss


def cispo(logp_N: torch.Tensor, targets: Targets, ratio_max: float) -> TokenLoss:
    """−sg(min(ρ, ratio_max)) · A · log π, ρ = π / behaviour; the gradient is −min(ρ, ratio_max) · A · ∇log π."""
    weight_N = truncated(logp_N.detach() - targets.behaviour_N, ratio_max)
    return TokenLoss(-weight_N * targets.advantages_N * logp_N, weight_N >= ratio_max)

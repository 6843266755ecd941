"""CISPO: the truncated importance weight is a constant, so every token keeps its gradient (MiniMax-M1, arXiv 2506.13585, eq. 4–5).

As in the paper's experiments the weight has a cap and no floor.
"""

import torch

from services.trainer.losses.corrections.tis import token_weights
from services.trainer.losses.targets import Targets, TokenLoss


def cispo(logp_N: torch.Tensor, targets: Targets, ratio_max: float) -> TokenLoss:
    """[N] −sg(min(ρ, ratio_max)) · A · log π, ρ = π / behaviour; the gradient is −min(ρ, ratio_max) · A · ∇log π."""
    weights = token_weights(logp_N.detach() - targets.behaviour_N, ratio_max)
    return TokenLoss(-weights.weights_N * targets.advantages_N * logp_N, weights.capped_N)

"""The plain policy gradient (REINFORCE, Williams 1992), with the importance weights that corrections give, or none."""

import torch

from services.trainer.losses.corrections.tis import Weights
from services.trainer.losses.targets import Targets, TokenLoss


def policy_gradient(logp_N: torch.Tensor, targets: Targets, weights: Weights | None = None) -> TokenLoss:
    """[N] −w · A · log π with constant w; without weights w = 1, which is unbiased only on policy."""
    if weights is None:
        return TokenLoss(-targets.advantages_N * logp_N, torch.zeros_like(logp_N, dtype=torch.bool))
    return TokenLoss(-weights.weights_N * targets.advantages_N * logp_N, weights.capped_N)

"""GRPO's token objective: PPO's clip against the behaviour policy (DeepSeekMath, arXiv 2402.03300, eq. 3; without its KL term)."""

import torch

from services.trainer.losses.targets import Targets, TokenLoss


def grpo(logp_N: torch.Tensor, targets: Targets, clip_low: float, clip_high: float) -> TokenLoss:
    """−min(ρ·A, clip(ρ, 1−clip_low, 1+clip_high)·A); where the clip is the minimum the token has no gradient."""
    ratio_N = (logp_N - targets.behaviour_N).exp()
    plain_N = ratio_N * targets.advantages_N
    clipped_N = ratio_N.clamp(1 - clip_low, 1 + clip_high) * targets.advantages_N
    return TokenLoss(-torch.minimum(plain_N, clipped_N), clipped_N < plain_N)

"""GRPO's token objective: PPO's clip against the behaviour policy (DeepSeekMath, arXiv 2402.03300, eq. 3; without its KL term)."""

import torch

from services.trainer.losses.ratios import ratio
from services.trainer.losses.targets import Targets, TokenLoss


def grpo(logp_N: torch.Tensor, targets: Targets, clip_low: float, clip_high: float) -> TokenLoss:
    """[N] −min(ρ·A, clip(ρ, 1−clip_low, 1+clip_high)·A); where the clip is the minimum the token has no gradient.

    For A < 0 the ratio is not bounded above, as in the paper; the correction `mis_token` bounds it.
    """
    return clipped_surrogate(ratio(logp_N - targets.behaviour_N), targets.advantages_N, clip_low, clip_high)


def clipped_surrogate(
    ratio_N: torch.Tensor, advantages_N: torch.Tensor, clip_low: float, clip_high: float
) -> TokenLoss:
    """[N] PPO's pessimistic minimum (arXiv 1707.06347, eq. 7) of ratios with gradient."""
    plain_N = ratio_N * advantages_N
    clipped_N = ratio_N.clamp(1 - clip_low, 1 + clip_high) * advantages_N
    return TokenLoss(-torch.minimum(plain_N, clipped_N), clipped_N < plain_N)

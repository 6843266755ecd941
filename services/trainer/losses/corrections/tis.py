"""Truncated importance sampling: weights min(ρ, cap) (Ionides 2008; for sampler–trainer gaps Yao et al. 2025, "Your efficient RL framework
secretly brings you off-policy RL training"; sequence level Liu & Li 2025, "When speed kills stability").

Weights, not masks: a capped token still counts as one in every denominator.
"""

from typing import NamedTuple

import torch

from services.trainer.losses.ratios import ratio
from services.trainer.losses.targets import Targets, sequence_sum


class Weights(NamedTuple):
    """Constants: no gradient goes through them."""

    weights_N: torch.Tensor
    """float32"""
    capped_N: torch.Tensor
    """bool, where the cap acted."""


def token_weights(log_ratio_N: torch.Tensor, ratio_max: float) -> Weights:
    """min(ρ_t, ratio_max): little variance, and the bias of leaving out what ρ of the other tokens says of this one's state."""
    ratio_N = ratio(log_ratio_N.detach())
    return Weights(ratio_N.clamp(max=ratio_max), ratio_N > ratio_max)


def sequence_weights(log_ratio_N: torch.Tensor, targets: Targets, ratio_max: float) -> Weights:
    """min(Π ρ over the sequence's targets, ratio_max) for each of its tokens: unbiased below the cap, and at the cap or near 0 for long ones."""
    ratio_N = ratio(sequence_sum(log_ratio_N.detach(), targets))[targets.sequences_N]
    return Weights(ratio_N.clamp(max=ratio_max), ratio_N > ratio_max)

"""Corrections for the gap between sampler and trainer that stand beside any objective."""

import math

import torch

from services.trainer.losses.targets import Targets


def veto(log_ratio_N: torch.Tensor, targets: Targets, veto_ratio: float) -> torch.Tensor:
    """bool[N], False for every token of a row in which any ratio is below `veto_ratio`; all True when it is 0.

    One token that the trainer finds ten thousand times less likely than the sampler did means that something else was sampled (a
    wrong tokeniser, mask or version): the whole row is not trusted ("catastrophic token veto", verl's rollout correction).
    """
    if veto_ratio <= 0:
        return torch.ones_like(log_ratio_N, dtype=torch.bool)
    low_N = (log_ratio_N < math.log(veto_ratio)).to(log_ratio_N.dtype)
    low_R = log_ratio_N.new_zeros(targets.rows).index_add(0, targets.rows_N, low_N)
    return (low_R == 0)[targets.rows_N]


def truncated(log_ratio_N: torch.Tensor, ratio_max: float) -> torch.Tensor:
    """[N] token weights min(ρ, ratio_max) (truncated importance sampling, Ionides 2008)."""
    return log_ratio_N.exp().clamp(max=ratio_max)

"""One impossible token condemns its sequence.

A token that the trainer finds ten thousand times less likely than the sampler did means that something else was sampled (a wrong tokeniser,
mask or version): the whole sequence is not trusted ("catastrophic token veto", verl's rollout correction, 2025).
"""

import math

import torch

from services.trainer.losses.targets import Targets, sequence_sum


def veto(log_ratio_N: torch.Tensor, targets: Targets, veto_ratio: float) -> torch.Tensor:
    """bool[N], False for every token of a sequence in which any ρ is below `veto_ratio`."""
    low_N = (log_ratio_N < math.log(veto_ratio)).to(log_ratio_N.dtype)
    return (sequence_sum(low_N, targets) == 0)[targets.sequences_N]

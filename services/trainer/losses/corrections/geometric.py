"""Rejection by the geometric mean of a sequence's ratios, which unlike their product does not depend on its length
(Liu & Li 2025, "When speed kills stability", part 3: length traps)."""

import torch

from services.trainer.losses.corrections.masked import Band, within
from services.trainer.losses.ratios import ratio
from services.trainer.losses.targets import Targets, sequence_mean


def reject(log_ratio_N: torch.Tensor, targets: Targets, band: Band) -> torch.Tensor:
    """bool[N], True for the tokens of sequences with exp(mean log ρ) in the band."""
    return within(ratio(sequence_mean(log_ratio_N, targets)), band)[targets.sequences_N]

"""Masked importance sampling: what is out of the band is left out instead of capped (Liu & Li 2025, "When speed kills stability"; token
level with both sides IcePop, Ring-1T, arXiv 2510.18855, band [.5, 5]).

Only the mask; the weight ρ of what stays is the objective's own or that of `tis_token`/`tis_sequence`.
"""

import torch

from services.trainer.losses.ratios import ratio
from services.trainer.losses.targets import Targets, sequence_sum

Band = tuple[float, float]


def within(ratio_N: torch.Tensor, band: Band) -> torch.Tensor:
    """bool of the same shape, True from the lower to the upper end, both included."""
    low, high = band
    return (ratio_N >= low) & (ratio_N <= high)


def mask_tokens(log_ratio_N: torch.Tensor, band: Band) -> torch.Tensor:
    """bool[N], True where ρ_t is in the band."""
    return within(ratio(log_ratio_N), band)


def mask_sequences(log_ratio_N: torch.Tensor, targets: Targets, band: Band) -> torch.Tensor:
    """bool[N], True for the tokens of sequences whose Π ρ is in the band."""
    return within(ratio(sequence_sum(log_ratio_N, targets)), band)[targets.sequences_N]

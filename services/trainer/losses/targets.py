"""The target tokens a loss speaks of.

Shape legend: N target tokens of one padded batch, row after row; R rows. A row is a chosen path of one sample, and the *sequence* of
sequence-level objectives: it is never split, so nothing depends on how rows are spread over micro-steps and cells.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch


@dataclass(frozen=True)
class Targets:
    """All but the trainer's own log-probabilities."""

    behaviour_N: torch.Tensor
    """float32, log-probability under the policy that sampled the token."""
    advantages_N: torch.Tensor
    """float32"""
    weights_N: torch.Tensor
    """float32, 1/|U_e| (B7); the batch divisor is applied at the update."""
    rows_N: torch.Tensor
    """int64, which row the token is in, 0 … R−1."""
    ages_N: torch.Tensor
    """int64, step − version that sampled the token."""
    rows: int
    """R"""


class TokenLoss(NamedTuple):
    """What an objective returns."""

    loss_N: torch.Tensor
    """Loss of each token, to be weighted and summed."""
    clipped_N: torch.Tensor
    """bool, where a clip or cap acted."""


def row_mean(values_N: torch.Tensor, targets: Targets) -> torch.Tensor:
    """[R] mean over each row's targets; 0 for a row without any."""
    sums_R = values_N.new_zeros(targets.rows).index_add(0, targets.rows_N, values_N)
    counts_R = values_N.new_zeros(targets.rows).index_add(0, targets.rows_N, torch.ones_like(values_N))
    return sums_R / counts_R.clamp(min=1)

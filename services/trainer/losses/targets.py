"""The target tokens a loss speaks of.

Shape legend: N target tokens of one forward; S sequences; M samples. A *sequence* is one model call's chosen targets (a response): what
sequence-level ratios, vetoes and geometric means speak of. A *sample* is one execution. Neither is ever divided between forwards' decisions: a
sequence stands whole in one row, a sample whole in one micro-step, so nothing depends on how rows, micro-steps and cells were cut.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

import torch


@dataclass(frozen=True)
class Targets:
    """All but the trainer's own log-probabilities."""

    behaviour_N: torch.Tensor
    """float32, log-probability under the policy that sampled the token."""
    advantages_N: torch.Tensor
    """float32"""
    sequences_N: torch.Tensor
    """int64, which sequence the token is in, 0 … S−1."""
    ages_N: torch.Tensor
    """int64, step − version that sampled the token."""
    sample_of_S: torch.Tensor
    """int64, which sample the sequence is of, 0 … M−1."""
    samples: int
    """M"""

    @property
    def sequences(self) -> int:
        """S"""
        return len(self.sample_of_S)

    @property
    def samples_N(self) -> torch.Tensor:
        """int64, which sample the token is of."""
        return self.sample_of_S[self.sequences_N]

    def where(self, keep_N: torch.Tensor) -> "Targets":
        """Only the targets where `keep_N` (bool); sequences and samples keep their numbers."""
        of_tokens = ("behaviour_N", "advantages_N", "sequences_N", "ages_N")
        return replace(self, **{name: getattr(self, name)[keep_N] for name in of_tokens})


class TokenLoss(NamedTuple):
    """What an objective returns."""

    loss_N: torch.Tensor
    """Loss of each token, to be weighted by the norm and summed."""
    clipped_N: torch.Tensor
    """bool, where a clip or cap acted."""


def sum_by(index_N: torch.Tensor, values_N: torch.Tensor, size: int) -> torch.Tensor:
    """[size] sums of the values that share an index; 0 where there are none."""
    return values_N.new_zeros(size).index_add(0, index_N, values_N)


def sequence_lengths(targets: Targets) -> torch.Tensor:
    """float32[S] targets of each sequence."""
    return sum_by(targets.sequences_N, torch.ones_like(targets.behaviour_N), targets.sequences)


def sequence_sum(values_N: torch.Tensor, targets: Targets) -> torch.Tensor:
    """[S] sum over each sequence's targets."""
    return sum_by(targets.sequences_N, values_N, targets.sequences)


def sequence_mean(values_N: torch.Tensor, targets: Targets) -> torch.Tensor:
    """[S] mean over each sequence's targets; 0 for a sequence without any."""
    return sequence_sum(values_N, targets) / sequence_lengths(targets).clamp(min=1)

"""Corrections for the gap between sampler and trainer, by name, in any combination.

Masks (mis_token, mis_sequence, geometric, veto) judge each target by all targets of its sequence, each mask for itself: their order
does not matter, and what one leaves out does not change what another sees. What they leave out is as if it had not been sampled: it is in no
sum, ratio of a sequence, or denominator. Weights (tis_token, tis_sequence) are taken of what the masks keep, and change no denominator.
"""

from collections.abc import Callable, Mapping

import torch

from gyre.config import TrainerConfig
from services.trainer.losses.corrections.geometric import reject
from services.trainer.losses.corrections.masked import mask_sequences, mask_tokens
from services.trainer.losses.corrections.tis import Weights, sequence_weights, token_weights
from services.trainer.losses.corrections.veto import veto
from services.trainer.losses.targets import Targets

MASKS: dict[str, Callable[[torch.Tensor, Targets, TrainerConfig], torch.Tensor]] = {
    "mis_token": lambda log_ratio_N, targets, c: mask_tokens(log_ratio_N, c.token_band),
    "mis_sequence": lambda log_ratio_N, targets, c: mask_sequences(log_ratio_N, targets, c.sequence_band),
    "geometric": lambda log_ratio_N, targets, c: reject(log_ratio_N, targets, c.geometric_band),
    "veto": lambda log_ratio_N, targets, c: veto(log_ratio_N, targets, c.veto_ratio),
}
"""Name → bool[N], True where the token may stay."""


def masks(logp_N: torch.Tensor, targets: Targets, config: TrainerConfig) -> dict[str, torch.Tensor]:
    """What each of the configured masks says, by its name."""
    log_ratio_N = logp_N.detach() - targets.behaviour_N
    return {name: MASKS[name](log_ratio_N, targets, config) for name in config.corrections if name in MASKS}


def all_of(masks_N: Mapping[str, torch.Tensor], targets: Targets) -> torch.Tensor:
    """bool[N], True where every mask is."""
    keep_N = torch.ones_like(targets.behaviour_N, dtype=torch.bool)
    for mask_N in masks_N.values():
        keep_N = keep_N & mask_N
    return keep_N


def importance_weights(log_ratio_N: torch.Tensor, targets: Targets, config: TrainerConfig) -> Weights:
    """Truncated weights of the sequence where `tis_sequence` is named, else of the token."""
    if "tis_sequence" in config.corrections:
        return sequence_weights(log_ratio_N, targets, config.ratio_max)
    return token_weights(log_ratio_N, config.ratio_max)

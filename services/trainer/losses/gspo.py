"""GSPO in its token form: the ratio of the whole sequence is clipped (arXiv 2507.18071, eq. 5–7 and 14).

The policy that sampled a row may be several versions old and another engine's arithmetic, so each token also carries its own truncated
importance weight as a constant (the settings of the QwenGyre paper, arXiv 2609.33848: clip [.995, 1.005], token weight at most 5).
"""

import torch

from services.trainer.losses.corrections import truncated
from services.trainer.losses.targets import Targets, TokenLoss, row_mean


def gspo(logp_N: torch.Tensor, targets: Targets, clip_low: float, clip_high: float, ratio_max: float) -> TokenLoss:
    """−sg(min(ρ_t, ratio_max)) · min(s_t·A, clip(s_t)·A), s_t = sg(s)·π_t/sg(π_t), s = exp(mean over the row of log ρ)."""
    log_ratio_N = logp_N.detach() - targets.behaviour_N
    sequence_N = row_mean(log_ratio_N, targets).exp()[targets.rows_N]
    ratio_N = sequence_N * (logp_N - logp_N.detach()).exp()
    plain_N = ratio_N * targets.advantages_N
    clipped_N = ratio_N.clamp(1 - clip_low, 1 + clip_high) * targets.advantages_N
    return TokenLoss(-truncated(log_ratio_N, ratio_max) * torch.minimum(plain_N, clipped_N), clipped_N < plain_N)

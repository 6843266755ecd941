"""GSPO in its token form: the ratio of the whole sequence is clipped (arXiv 2507.18071, eq. 5–7 and 14).

The policy that sampled a sequence may be several versions old and another engine's arithmetic, so each token also carries a truncated
importance weight as a constant (the settings of the QwenGyre paper, arXiv 2609.33848: clip [.995, 1.005], token weight at most 5).
"""

import torch

from services.trainer.losses.corrections.tis import Weights
from services.trainer.losses.grpo import clipped_surrogate
from services.trainer.losses.ratios import ratio
from services.trainer.losses.targets import Targets, TokenLoss, sequence_mean


def gspo(logp_N: torch.Tensor, targets: Targets, weights: Weights, clip_low: float, clip_high: float) -> TokenLoss:
    """[N] −w_t · min(s_t·A, clip(s_t)·A), s_t = sg(s)·π_t/sg(π_t), s = exp(mean over the sequence of log ρ).

    `weights` is of the token (the paper's) or of the sequence; the mean is over the targets that are given, so over kept ones.
    """
    log_ratio_N = logp_N.detach() - targets.behaviour_N
    sequence_N = ratio(sequence_mean(log_ratio_N, targets))[targets.sequences_N]
    ratio_N = sequence_N * (logp_N - logp_N.detach()).exp()
    surrogate = clipped_surrogate(ratio_N, targets.advantages_N, clip_low, clip_high)
    return TokenLoss(weights.weights_N * surrogate.loss_N, surrogate.clipped_N)

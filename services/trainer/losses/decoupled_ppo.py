"""Decoupled PPO: the clip is around a proximal policy, the weight corrects from the sampler to it (Hilton et al., arXiv 2110.00641, eq. 3;
for asynchronous training AReaL, arXiv 2505.24298, eq. 5).

The proximal log-probabilities come from the same forward as the policy's own, by name:

    current        the policy itself, detached. A batch is used for one update, so recomputing the proximal policy before it would give
                   exactly these numbers; then π/prox is 1, nothing is clipped, and the gradient is that of a truncated importance weight.
    interpolated   log prox = log μ / d + (1 − 1/d) · log π for a token of age d ≥ 1, and log π at age 0 (A-3PO, arXiv 2512.06547, section 3:
                   α = (v_prox − v_μ)/(v_π − v_μ) with v_prox = v_π − 1). Then π/prox = ρ^(1/d): older tokens have a wider trust region, which is all
                   that tells the clip of staleness from the clip of an update.
"""

import torch

from services.trainer.losses.corrections.tis import Weights
from services.trainer.losses.grpo import clipped_surrogate
from services.trainer.losses.ratios import ratio
from services.trainer.losses.targets import Targets, TokenLoss


def proximal(name: str, logp_N: torch.Tensor, targets: Targets) -> torch.Tensor:
    """float32[N] log-probabilities of the proximal policy `current` or `interpolated`, without gradient."""
    logp_N = logp_N.detach()
    if name == "current":
        return logp_N
    behaviour_share_N = torch.where(targets.ages_N > 0, 1.0 / targets.ages_N.clamp(min=1), 0.0)
    return logp_N + behaviour_share_N * (targets.behaviour_N - logp_N)


def decoupled_ppo(
    logp_N: torch.Tensor,
    targets: Targets,
    proximal_N: torch.Tensor,
    weights: Weights,
    clip_low: float,
    clip_high: float,
) -> TokenLoss:
    """[N] −w · min(r·A, clip(r, 1−clip_low, 1+clip_high)·A), r = π/prox, `weights` the truncated prox/μ (constants)."""
    surrogate = clipped_surrogate(ratio(logp_N - proximal_N), targets.advantages_N, clip_low, clip_high)
    return TokenLoss(weights.weights_N * surrogate.loss_N, surrogate.clipped_N)

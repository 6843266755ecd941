"""ρ = π / μ, the policy over what sampled, from log-probabilities."""

import torch

LOG_RATIO_MAX = 20.0
"""Log ratios are taken inside ±20 (2e-9 … 5e8) before they are raised: e^89 is already infinite in float32, and infinity times 0 is no number."""


def ratio(log_ratio_N: torch.Tensor) -> torch.Tensor:
    """exp of log ratios of any shape; beyond ±LOG_RATIO_MAX constant, so without gradient."""
    return log_ratio_N.clamp(-LOG_RATIO_MAX, LOG_RATIO_MAX).exp()

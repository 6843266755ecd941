"""AIPO: off-policy policy gradient with one-sided truncation (LlamaRL, arXiv 2505.24034, section 6), ρ_max from 2 to 10.

The paper corrects from the sampler straight to the current policy, without a clip, as is done here for every objective. Against
the sampler CISPO's constant weight is the same one, so both have the same gradient at the same cap; with `policy_gradient`
and the correction `tis_token` that makes three names of one estimator, each of which its literature asks for.
"""

import torch

from services.trainer.losses.corrections.tis import token_weights
from services.trainer.losses.policy_gradient import policy_gradient
from services.trainer.losses.targets import Targets, TokenLoss


def aipo(logp_N: torch.Tensor, targets: Targets, ratio_max: float) -> TokenLoss:
    """[N] −sg(min(π / behaviour, ratio_max)) · A · log π."""
    return policy_gradient(logp_N, targets, token_weights(logp_N.detach() - targets.behaviour_N, ratio_max))

"""Objectives against numbers worked out by hand: losses, and gradients against their closed form."""

import math

import pytest
import torch

from services.trainer.losses import CLIPS, OBJECTIVES
from services.trainer.losses.aipo import aipo
from services.trainer.losses.cispo import cispo
from services.trainer.losses.corrections.tis import sequence_weights, token_weights
from services.trainer.losses.decoupled_ppo import decoupled_ppo, proximal
from services.trainer.losses.grpo import clipped_surrogate, grpo
from services.trainer.losses.gspo import gspo
from services.trainer.losses.policy_gradient import policy_gradient
from tests.unit.trainer.loss_cases import configuration, targets_of, tokens, train

E = math.exp


def gradient(loss, logp_N) -> torch.Tensor:
    loss.loss_N.sum().backward()
    return logp_N.grad


def test_the_policy_gradient_is_minus_the_advantage_whatever_the_ratio():
    """C8. ∂/∂logp of −A·logp is −A; nothing of the sampler is in it."""
    logp_N, about = targets_of(tokens([0.0, 1.0, -1.0], [1.0, 3.0, -2.0]))
    torch.testing.assert_close(gradient(policy_gradient(logp_N, about), logp_N), torch.tensor([-1.0, -3.0, 2.0]))


def test_cispo_keeps_the_gradient_of_a_capped_token():
    """C8. ∂/∂logp of −min(ρ, 2)·A·logp is −min(ρ, 2)·A: the weight is a constant, so its cap stops nothing. e^1 = 2.718 is capped."""
    logp_N, about = targets_of(tokens([0.0, 1.0, -1.0], [1.0, 3.0, -2.0]))
    loss = cispo(logp_N, about, 2.0)
    assert loss.clipped_N.tolist() == [False, True, False]
    torch.testing.assert_close(gradient(loss, logp_N), torch.tensor([-1.0, -6.0, 2.0 * E(-1)]))


def test_aipo_truncates_one_side():
    """C8. min(ρ, 2) of e^1 and e^−3: the first is cut to 2, the second keeps .0498, which no lower clip raises."""
    logp_N, about = targets_of(tokens([1.0, -3.0], [1.0, 1.0]))
    torch.testing.assert_close(gradient(aipo(logp_N, about, 2.0), logp_N), torch.tensor([-2.0, -E(-3)]))


def test_grpo_stops_a_token_that_went_far_enough():
    """C8. A > 0 and ρ above the clip, or A < 0 and ρ below it: no gradient; on the other side of the clip there is one."""
    logp_N, about = targets_of(tokens([0.5, 0.5, -0.5, -0.5], [1.0, -1.0, 1.0, -1.0]))
    loss = grpo(logp_N, about, 0.2, 0.2)
    up, down = E(0.5), E(-0.5)
    torch.testing.assert_close(loss.loss_N.detach(), torch.tensor([-1.2, up, -down, 0.8]))
    torch.testing.assert_close(gradient(loss, logp_N), torch.tensor([0.0, up, -down, 0.0]))
    assert loss.clipped_N.tolist() == [True, False, False, True]


def test_gspo_clips_by_the_geometric_mean_of_the_sequence():
    """C8. Sequence 0 has log ratios +1 and −1, mean 0, s = 1: inside, although each token is far out. Sequence 1 has mean .5, s = 1.6487: clipped."""
    logp_N, about = targets_of(tokens([1.0, -1.0, 0.5, 0.5], sequences=[0, 0, 1, 1]))
    loss = gspo(logp_N, about, token_weights(logp_N - about.behaviour_N, 2.0), 0.005, 0.005)
    assert loss.clipped_N.tolist() == [False, False, True, True]
    # token weight min(ρ, 2) times s = 1 times A = 1; the clipped sequence gives nothing
    torch.testing.assert_close(gradient(loss, logp_N), torch.tensor([-2.0, -E(-1), 0.0, 0.0]))


def test_gspo_has_the_numbers_of_the_paper():
    """C8. Clip [.995, 1.005], token weight at most 5. A = 1: s = e^.0045 = 1.00451 is inside; e^.0055 = 1.00551 is out, its token stops;
    token ratio e^2 = 7.389 with e^−2 beside it (s = 1): weights 5 and .1353."""
    assert CLIPS["gspo"] == (0.005, 0.005) and configuration("gspo").ratio_max == 5.0
    given = tokens([0.0045, 0.0055, 2.0, -2.0], sequences=[0, 1, 2, 2])
    found = train(given, configuration("gspo", "token")).gradient
    expected = [-(E(0.0045) ** 2), 0.0, -5.0, -E(-2)]
    assert list(found.values()) == pytest.approx([value / 4 for value in expected], rel=1e-5)


def test_gspo_with_one_weight_for_the_sequence():
    """C8. tis_sequence: log ratios 1 and −1 have the product 1, so both tokens weigh 1 instead of 2 and .368."""
    logp_N, about = targets_of(tokens([1.0, -1.0]))
    weights = sequence_weights(logp_N - about.behaviour_N, about, 2.0)
    torch.testing.assert_close(gradient(gspo(logp_N, about, weights, 0.005, 0.005), logp_N), torch.tensor([-1.0, -1.0]))


def test_the_proximal_policy_lies_between_sampler_and_policy_by_age():
    """C8. log μ = −1, log π = −.4. Age 0: the policy. Age 1: v_prox = v_π − 1 = v_μ, the sampler. Age 4: −.4 + ¼·(−.6) = −.55."""
    logp_N, about = targets_of(tokens([0.6, 0.6, 0.6], ages=[0, 1, 4]))
    torch.testing.assert_close(proximal("interpolated", logp_N, about), torch.tensor([-0.4, -1.0, -0.55]))
    torch.testing.assert_close(proximal("current", logp_N, about), torch.tensor([-0.4, -0.4, -0.4]))


def test_decoupled_ppo_widens_its_trust_region_with_age():
    """C8. ρ = e^.6 = 1.822, A = 1, clip .2. Age 1: r = ρ is clipped. Age 4: r = ρ^¼ = e^.15 = 1.162 is not, w = e^.45, gradient −w·r = −ρ."""
    logp_N, about = targets_of(tokens([0.6, 0.6], ages=[1, 4]))
    proximal_N = proximal("interpolated", logp_N, about)
    weights = token_weights(proximal_N - about.behaviour_N, 5.0)
    torch.testing.assert_close(weights.weights_N, torch.tensor([1.0, E(0.45)]))
    loss = decoupled_ppo(logp_N, about, proximal_N, weights, 0.2, 0.2)
    assert loss.clipped_N.tolist() == [True, False]
    torch.testing.assert_close(gradient(loss, logp_N), torch.tensor([0.0, -E(0.6)]))


def test_around_the_current_policy_nothing_is_clipped():
    """C8. One update a batch: π/prox = 1, so decoupled PPO is the truncated importance weight, AIPO's gradient."""
    given = tokens([0.6, 2.0, -1.0], [1.0, 1.0, -1.0], ages=[1, 2, 3])
    found = train(given, configuration("decoupled_ppo", proximal="current"))
    assert found.by_sample[0]["clipped"] == 0
    assert found.gradient == pytest.approx(train(given, configuration("aipo")).gradient, rel=1e-6)


def test_three_names_have_one_gradient():
    """C8. cispo, aipo, and policy_gradient with tis_token are −min(ρ, 5)·A: [1, 5·2, e^−1·(−1)] over three tokens of one execution."""
    given = tokens([0.0, 2.0, -1.0], [1.0, 2.0, -1.0])
    expected = [-1 / 3, -10 / 3, E(-1) / 3]
    for config in (
        configuration("cispo"),
        configuration("aipo"),
        configuration("policy_gradient", corrections=["tis_token"]),
    ):
        assert list(train(given, config).gradient.values()) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("objective", sorted(OBJECTIVES))
def test_a_ratio_beyond_all_bounds_gives_no_infinity(objective):
    """A2. e^100 is infinite in float32, and infinity · 0 is no number; such weights would be published."""
    found = train(tokens([100.0, -100.0, 0.1], [-1.0, 0.0, 1.0], sequences=[0, 1, 2]), configuration(objective))
    assert all(math.isfinite(value) for value in [found.loss, *found.gradient.values()])
    assert all(math.isfinite(value) for sums in found.by_sample.values() for value in sums.values())


def test_the_clipped_surrogate_agrees_with_finite_differences():
    """C8. Double precision, away from the clip's two corners."""
    log_ratio_N = torch.tensor([0.5, 0.1, -0.1, -0.5], dtype=torch.float64, requires_grad=True)
    for sign in (1.0, -1.0):
        advantages_N = sign * torch.tensor([1.0, 2.0, 0.5, 1.5], dtype=torch.float64)
        assert torch.autograd.gradcheck(
            lambda x, a=advantages_N: clipped_surrogate(x.exp(), a, 0.2, 0.2).loss_N.sum(), [log_ratio_N]
        )

"""Corrections for the gap between sampler and trainer, alone, together, and as settings."""

import math

import pytest
import torch

from gyre.config import TrainerConfig
from gyre.config.load import parse
from gyre.errors import ConfigError
from services.trainer.losses import OBJECTIVES, keep
from services.trainer.losses.corrections.geometric import reject
from services.trainer.losses.corrections.masked import mask_sequences, mask_tokens
from services.trainer.losses.corrections.tis import sequence_weights, token_weights
from services.trainer.losses.corrections.veto import veto
from tests.unit.trainer.loss_cases import configuration, targets_of, tokens, train

E = math.exp


def log_ratios(given):
    logp_N, about = targets_of(given)
    return logp_N.detach() - about.behaviour_N, about


def test_token_weights_are_cut_at_the_cap():
    """C8. e^.5 = 1.6487, e^−.5 = .6065, e^1 = 2.718 → 2; one of three is cut."""
    weights = token_weights(torch.tensor([0.5, -0.5, 1.0]), 2.0)
    torch.testing.assert_close(weights.weights_N, torch.tensor([1.6487, 0.6065, 2.0]), atol=1e-4, rtol=0)
    assert weights.capped_N.double().mean().item() == pytest.approx(1 / 3)


def test_a_sequence_weight_is_the_product_of_its_tokens_cut_at_the_cap():
    """C8. e^(1+1+1) = 20.09 → 5; with the middle token masked e^(1+1) = 7.389 → 5: a masked token is in no product. A cap of 100 shows both."""
    log_ratio_N, about = log_ratios(tokens([1.0, 1.0, 1.0]))
    assert sequence_weights(log_ratio_N, about, 5.0).weights_N.tolist() == [5.0, 5.0, 5.0]
    assert sequence_weights(log_ratio_N, about, 100.0).weights_N.tolist() == pytest.approx([20.0855] * 3, rel=1e-5)
    keep_N = torch.tensor([True, False, True])
    masked = about.where(keep_N)
    assert sequence_weights(log_ratio_N[keep_N], masked, 5.0).weights_N.tolist() == [5.0, 5.0]
    assert sequence_weights(log_ratio_N[keep_N], masked, 100.0).weights_N.tolist() == pytest.approx([7.38906] * 2)


def test_masked_importance_sampling_leaves_out_what_truncation_would_cap():
    """C8. Band [.5, 5]: e^−1 = .368 and e^2 = 7.39 are out, e^−.5 = .607 and e^1.5 = 4.48 in."""
    assert mask_tokens(torch.tensor([-1.0, 2.0, -0.5, 1.5]), (0.5, 5.0)).tolist() == [False, False, True, True]


def test_masked_sequences_go_by_their_product():
    """C8. Sequence 0: e^(1+1) = 7.39 > 5, out; sequence 1: e^(2−1) = 2.72, in, although e^2 alone is out."""
    log_ratio_N, about = log_ratios(tokens([1.0, 2.0, 1.0, -1.0], sequences=[0, 1, 0, 1]))
    assert mask_sequences(log_ratio_N, about, (0.0, 5.0)).tolist() == [False, True, False, True]


def test_the_geometric_mean_does_not_depend_on_length():
    """C8. Band [.9, 1.1]: mean of [.5, −.5] is 0, ratio 1.0, kept; mean of [.5] or of four times .5 is .5, ratio 1.6487, rejected."""
    log_ratio_N, about = log_ratios(tokens([0.5, -0.5, 0.5, 0.5, 0.5, 0.5, 0.5], sequences=[0, 0, 1, 2, 2, 2, 2]))
    assert reject(log_ratio_N, about, (0.9, 1.1)).tolist() == [True, True, *[False] * 5]


def test_one_impossible_token_vetoes_its_sequence_and_no_other():
    """C8. ln 1e-4 = −9.21: −10 condemns sequence 0; sequence 1 of the same sample, with −9, stays."""
    log_ratio_N, about = log_ratios(tokens([0.0, -10.0, -9.0], sequences=[0, 0, 1], samples=[0, 0, 0]))
    assert veto(log_ratio_N, about, 1e-4).tolist() == [False, False, True]


@pytest.mark.parametrize("objective", sorted(OBJECTIVES))
def test_a_vetoed_sequence_moves_nothing_and_counts_nowhere(objective):
    """C8, B7. Of one execution's 3 tokens 2 are vetoed: the third alone is its mean, gradient −A/1 on policy."""
    given = tokens([0.0, -10.0, 0.0], sequences=[0, 0, 1], samples=[0, 0, 0])
    found = train(given, configuration(objective, corrections=["veto"]))
    assert list(found.gradient.values()) == pytest.approx([0.0, 0.0, -1.0])
    assert (found.by_sample[0]["vetoed"], found.by_sample[0]["kept"]) == (2.0, 1.0)


def test_masks_judge_what_was_sampled_and_not_what_others_left():
    """C8. Sequence [0, −1]: mis_token leaves out e^−1; the geometric mean e^−.5 is that of both tokens, so it rejects the rest in either order."""
    logp_N, about = targets_of(tokens([0.0, -1.0]))
    for order in (["mis_token", "geometric"], ["geometric", "mis_token"]):
        assert keep(logp_N, about, configuration("grpo", corrections=order)).tolist() == [False, False]
    assert keep(logp_N, about, configuration("grpo", corrections=["mis_token"])).tolist() == [True, False]


def test_masked_importance_sampling_is_a_weight_and_a_mask():
    """C8. Band [0, 5], cap 5: ρ·1{ρ ≤ 5} of e^1 and e^2 is 2.718 and nothing; the mean is over the one that is kept."""
    config = configuration("policy_gradient", corrections=["tis_token", "mis_token"], token_band=(0.0, 5.0))
    assert list(train(tokens([1.0, 2.0]), config).gradient.values()) == pytest.approx([-E(1), 0.0], rel=1e-5)


def test_a_weight_does_not_change_a_denominator():
    """C8, B7. Cap 2: tokens of weight 2 and 1 are two tokens: gradients −2/2 and −1/2."""
    config = configuration("policy_gradient", corrections=["tis_token"], ratio_max=2.0)
    found = train(tokens([1.0, 0.0]), config)
    assert list(found.gradient.values()) == pytest.approx([-1.0, -0.5], rel=1e-5)
    assert found.by_sample[0]["kept"] == 2 and found.by_sample[0]["capped"] == 1


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"corrections": ["tis_token", "tis_sequence"]}, "name one"),
        ({"corrections": ["veto", "veto"]}, "name each once"),
        ({"objective": "cispo", "corrections": ["tis_token"]}, "set objective policy_gradient, gspo or decoupled_ppo"),
        ({"geometric_band": [1.1, 0.9]}, "lower end must be below"),
        ({"token_band": [2.0, 5.0]}, "1 must be inside"),
        ({"norm": "constant"}, "needs norm_constant"),
        ({"norm_constant": 640}, "with norm execution it is 0"),
        ({"ratio_max": 0.5}, ">= 1"),
        ({"veto_ratio": 1.0}, "< 1"),
        ({"corrections": ["tis"]}, "Invalid enum value"),
    ],
)  # fmt: skip
def test_settings_that_contradict_each_other_are_refused_with_what_would_do(settings, words):
    """C8. Where they are, what is wrong, what is possible."""
    with pytest.raises(ConfigError, match="trainer") as error:
        parse({"trainer": {"objective": "policy_gradient"} | settings}, "x.toml")
    assert words in str(error.value)


def test_the_default_is_a_correction_that_does_nothing_on_policy():
    """C8. Cap 5, veto at 1e-4, norm by execution."""
    config = TrainerConfig()
    assert (config.corrections, config.norm, config.ratio_max, config.veto_ratio) == (["veto"], "execution", 5.0, 1e-4)

"""What is exported of the gap between sampler and trainer, and what it does to the step size (C8)."""

import math

import pytest
import torch

from services.trainer.core.events import Batch
from services.trainer.core.plan import ess_factor
from services.trainer.losses.metrics import add_up, summarise
from services.trainer.optimizer import Optimizer
from services.trainer.report import metrics_of, sample_metrics
from tests.unit.trainer.loss_cases import Token, configuration, tokens, train

LN2 = math.log(2)


def summary(given, config):
    return summarise(add_up(train(given, config).by_sample.values()))


def test_measures_of_the_gap_are_those_of_the_formulas():
    """C8. log ratios ln 2 and −ln 2: ρ = 2, ½; k1 = −mean log ρ = 0; k3 = mean(ρ−1−log ρ) = ¼; E ρ² − 1 = 1.125; ESS = 2.5²/(2·4.25)."""
    found = summary(tokens([LN2, -LN2], ages=[0, 3]), configuration("cispo"))
    assert found["kl_k1"] == pytest.approx(0.0, abs=1e-6) and found["kl_k3"] == pytest.approx(0.25, rel=1e-5)
    assert found["chi2"] == pytest.approx(1.125, rel=1e-5) and found["ess"] == pytest.approx(6.25 / 8.5, rel=1e-5)
    assert found["logprob_gap_mean"] == pytest.approx(LN2, rel=1e-5) == found["logprob_gap_max"]
    assert found["ratio_mean"] == pytest.approx(1.25, rel=1e-5)


def test_the_same_measures_stand_for_each_age():
    """C8. Age 0 has ρ = 2 alone: k1 −ln 2, k3 1 − ln 2, χ² 3, ESS 1. Age 3 has ½ and ½: k1 ln 2, χ² −¾; the gap is ln 2 in both."""
    found = summary(tokens([LN2, -LN2, -LN2], ages=[0, 3, 3]), configuration("grpo"))
    assert found["age0_kl_k1"] == pytest.approx(-LN2, rel=1e-5) and found["age3_kl_k1"] == pytest.approx(LN2, rel=1e-5)
    assert found["age0_kl_k3"] == pytest.approx(1 - LN2, rel=1e-5)
    assert found["age0_chi2"] == pytest.approx(3.0, rel=1e-5) and found["age3_chi2"] == pytest.approx(-0.75, rel=1e-5)
    assert found["age0_ess"] == pytest.approx(1.0) == found["age3_ess"]
    assert (found["age0_targets"], found["age3_targets"]) == (1.0, 2.0)
    # grpo, clip .2: A > 0 and ρ = 2 is clipped, A > 0 and ρ = ½ is not
    assert (found["age0_clipped_share"], found["age3_clipped_share"]) == (1.0, 0.0)
    assert found["age3_logprob_gap_mean"] == pytest.approx(LN2, rel=1e-5)


def test_shares_of_what_was_left_out_are_of_all_targets_and_of_clips_of_kept_ones():
    """C8. Four tokens: one masked (e^2 out of [.5, 5]), two of a vetoed call (one at −11, so masked too), one kept and clipped (e^.5 > 1.2)."""
    given = [Token(2.0, 1, 0), Token(0.0, 1, 1), Token(-11.0, 1, 1), Token(0.5, 1, 2)]
    found = summary(given, configuration("grpo", corrections=["mis_token", "veto"]))
    assert (found["masked_share"], found["vetoed_share"], found["rejected_share"]) == (0.5, 0.5, 0.0)
    assert (found["kept_share"], found["clipped_share"]) == (0.25, 1.0)
    found = summary(given, configuration("grpo", corrections=["geometric", "mis_sequence"]))
    assert found["rejected_share"] == 1.0 and found["kept_share"] == 0.0 and found["ess"] == 0.0


def test_the_effective_share_is_that_of_the_truncated_weights_of_kept_tokens():
    """C8. Weights 5 (of e^3 = 20.1), 1, 1, 1; a vetoed token has none. 8²/(4·28) = .571; untruncated it would be 23.1²/(4·406) = .33."""
    given = [Token(3.0, 1, 0), *[Token(0.0, 1, 1)] * 3, Token(-11.0, 1, 2)]
    assert summary(given, configuration("cispo", corrections=["veto"]))["ess"] == pytest.approx(64 / 112, rel=1e-5)


def test_measures_add_up_over_samples_in_any_grouping():
    """B7, C8. Sums of sums and maxima of maxima do not know how samples were spread."""
    given = tokens([0.1, 0.4, -0.3, 0.2], samples=[0, 0, 1, 2], ages=[0, 1, 1, 5])
    a, b, c = train(given, configuration("cispo")).by_sample.values()
    left, right = add_up([add_up([a, b]), c]), add_up([c, add_up([b, a])])
    assert left == pytest.approx(right) and left["max_gap"] == pytest.approx(0.4, abs=1e-6)


def test_the_step_size_shrinks_with_the_root_of_the_effective_share_below_one_half():
    """C8. At ½ and above 1; at 1/8 √(¼) = ½; at 0 no step; with the line at 0 always 1."""
    assert [ess_factor(ess, 0.5) for ess in (1.0, 0.5, 0.125, 0.0)] == [1.0, 1.0, 0.5, 0.0]
    assert ess_factor(0.01, 0.0) == 1.0 and ess_factor(0.0, 0.0) == 1.0


def test_the_optimizer_steps_at_the_shrunken_rate():
    """C8. AdamW's first step moves each weight by lr against the sign of its gradient: .01 · ½."""
    weight = torch.nn.Parameter(torch.tensor([1.0]))
    optimizer = Optimizer([weight], configuration("cispo", lr=0.01))
    assert optimizer.step(torch.tensor([3.0]), 1.0, 0, lr_factor=0.5)["lr"] == pytest.approx(0.005)
    assert weight.item() == pytest.approx(1.0 - 0.005, rel=1e-5)


def test_the_loss_that_is_told_is_the_batch_s():
    """B7, A5. Two executions with losses 1 and 3: 2.0; each has its share, and they add up to it."""
    found = train([Token(0.0, 1.0, 0, 0), Token(0.0, 3.0, 0, 1)], configuration("policy_gradient"))
    by_sample = {str(sample): sums | {"tokens": 5.0} for sample, sums in found.by_sample.items()}
    told = metrics_of(by_sample, found.divisor, {"lr": 0.1})
    assert (told["loss"], told["divisor"], told["lr"], told["tokens"]) == (pytest.approx(2.0), 2.0, 0.1, 10.0)
    shares = [about["loss_share"] for about in sample_metrics(by_sample, found.divisor).values()]
    assert shares == pytest.approx([0.5, 1.5])


def test_a_batch_without_targets_has_metrics_all_the_same():
    """C10."""
    told = metrics_of({}, 1.0, {})
    assert told["loss"] == 0.0 and told["ess"] == 0.0 and Batch((), (), 1).untrained_targets == 0

"""Objectives against numbers worked out by hand."""

import math

import pytest
import torch

from gyre.config import TrainerConfig
from services.trainer.losses import policy_loss
from services.trainer.losses.cispo import cispo
from services.trainer.losses.corrections import truncated, veto
from services.trainer.losses.grpo import grpo
from services.trainer.losses.gspo import gspo
from services.trainer.losses.metrics import add_up, row_sums, summarise
from services.trainer.losses.targets import Targets, TokenLoss


def targets(
    log_ratios: list[float], advantages: list[float], rows: list[int] | None = None, ages: list[int] | None = None
):
    """(logp_N with gradient, Targets): behaviour log-probability −1 everywhere, weights 1/N."""
    count = len(log_ratios)
    logp_N = torch.tensor([-1.0 + ratio for ratio in log_ratios], requires_grad=True)
    rows = rows or [0] * count
    return logp_N, Targets(
        behaviour_N=torch.full((count,), -1.0), advantages_N=torch.tensor(advantages),
        weights_N=torch.full((count,), 1.0 / count), rows_N=torch.tensor(rows),
        ages_N=torch.tensor(ages or [0] * count), rows=max(rows) + 1,
    )  # fmt: skip


def test_token_importance_weights_are_cut_at_the_cap():
    """C8. e^.5 = 1.6487, e^−.5 = .6065, e^1 = 2.718 → 2; one of three is cut."""
    weights_N = truncated(torch.tensor([0.5, -0.5, 1.0]), 2.0)
    torch.testing.assert_close(weights_N, torch.tensor([1.6487, 0.6065, 2.0]), atol=1e-4, rtol=0)
    logp_N, about = targets([0.5, -0.5, 1.0], [1.0, 1.0, 1.0])
    assert cispo(logp_N, about, 2.0).clipped_N.tolist() == [False, False, True]


def test_cispo_keeps_the_gradient_of_a_capped_token():
    """C8. ∂/∂logp of −min(ρ, 2)·A·logp is −min(ρ, 2)·A: the weight is a constant, so its cap stops nothing."""
    logp_N, about = targets([0.0, 1.0, -1.0], [1.0, 3.0, -2.0])
    cispo(logp_N, about, 2.0).loss_N.sum().backward()
    torch.testing.assert_close(logp_N.grad, torch.tensor([-1.0, -6.0, 2.0 * math.exp(-1)]))


def test_grpo_stops_a_token_that_went_far_enough():
    """C8. A > 0 and ρ above the clip, or A < 0 and ρ below it: no gradient; on the other side of the clip there is one."""
    logp_N, about = targets([0.5, 0.5, -0.5, -0.5], [1.0, -1.0, 1.0, -1.0])
    loss = grpo(logp_N, about, 0.2, 0.2)
    loss.loss_N.sum().backward()
    up, down = math.exp(0.5), math.exp(-0.5)
    torch.testing.assert_close(loss.loss_N.detach(), torch.tensor([-1.2, up, -down, 0.8]))
    torch.testing.assert_close(logp_N.grad, torch.tensor([0.0, up, -down, 0.0]))
    assert loss.clipped_N.tolist() == [True, False, False, True]


def test_gspo_clips_by_the_geometric_mean_of_the_row():
    """C8. Row 0 has log ratios +1 and −1, mean 0, s = 1: inside, although each token is far out. Row 1 has mean .5, s = 1.6487: clipped."""
    logp_N, about = targets([1.0, -1.0, 0.5, 0.5], [1.0, 1.0, 1.0, 1.0], rows=[0, 0, 1, 1])
    loss = gspo(logp_N, about, 0.005, 0.005, 2.0)
    loss.loss_N.sum().backward()
    assert loss.clipped_N.tolist() == [False, False, True, True]
    # token weight min(ρ, 2) times s = 1 times A = 1; the clipped row gives nothing
    torch.testing.assert_close(logp_N.grad, torch.tensor([-2.0, -math.exp(-1), 0.0, 0.0]))


def test_a_row_with_one_impossible_token_gives_no_gradient():
    """C8. ln 1e-4 = −9.21: a log ratio of −10 vetoes its row and no other; 0 turns the veto off."""
    _, about = targets([0.0, -10.0, 0.0], [1.0, 1.0, 1.0], rows=[0, 0, 1])
    log_ratio_N = torch.tensor([0.0, -10.0, 0.0])
    assert veto(log_ratio_N, about, 1e-4).tolist() == [False, False, True]
    assert veto(log_ratio_N, about, 0.0).tolist() == [True, True, True]


@pytest.mark.parametrize("objective", ["cispo", "grpo", "gspo"])
def test_a_vetoed_row_moves_nothing(objective):
    """C8. Through the whole loss, for every objective."""
    logp_N, about = targets([0.0, -10.0, 0.0], [1.0, 1.0, 1.0], rows=[0, 0, 1])
    loss, sums = policy_loss(logp_N, about, TrainerConfig(objective=objective))
    loss.backward()
    assert logp_N.grad[:2].tolist() == [0.0, 0.0] and logp_N.grad[2] != 0
    assert [row["vetoed"] for row in sums] == [2.0, 0.0]


@pytest.mark.parametrize("objective", ["cispo", "grpo", "gspo"])
def test_zero_advantage_gives_no_gradient(objective):
    """B7. Nothing to learn from an execution that is as good as its group."""
    logp_N, about = targets([0.3, -0.2, 0.1], [0.0, 0.0, 0.0])
    loss, _ = policy_loss(logp_N, about, TrainerConfig(objective=objective))
    loss.backward()
    assert logp_N.grad.tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("objective", ["cispo", "grpo", "gspo"])
def test_on_policy_all_objectives_are_the_policy_gradient(objective):
    """B7. ρ = 1 everywhere: the gradient is −A·weight, whichever the objective."""
    logp_N, about = targets([0.0, 0.0], [2.0, -1.0])
    loss, _ = policy_loss(logp_N, about, TrainerConfig(objective=objective))
    loss.backward()
    torch.testing.assert_close(logp_N.grad, torch.tensor([-1.0, 0.5]))


def test_executions_count_alike_whatever_their_length():
    """B7. A: 100 tokens of loss 2.0, B: 900 of .5. By execution: (2.0 + .5)/2 = 1.25; a token norm would say (200 + 450)/1000 = .65."""
    weights_N = torch.cat([torch.full((100,), 1 / 100), torch.full((900,), 1 / 900)])
    losses_N = torch.cat([torch.full((100,), 2.0), torch.full((900,), 0.5)])
    assert (weights_N * losses_N).sum().item() / 2 == pytest.approx(1.25, rel=1e-5)
    assert losses_N.mean().item() == pytest.approx(0.65)


def test_measures_of_the_gap_are_those_of_the_formulas():
    """C8. log ratios ln 2 and −ln 2: ρ = 2, ½; k1 = −mean log ρ = 0; k3 = mean(ρ−1−log ρ) = ¼; E ρ² − 1 = 1.125; ESS = 2.5²/(2·4.25)."""
    logp_N, about = targets([math.log(2), -math.log(2)], [1.0, 1.0], ages=[0, 3])
    loss = TokenLoss(torch.zeros(2), torch.tensor([True, False]))
    sums = row_sums(logp_N.detach(), loss, torch.tensor([True, True]), about)
    found = summarise(add_up(sums))
    assert found["kl_k1"] == pytest.approx(0.0, abs=1e-6)
    assert found["kl_k3"] == pytest.approx(0.25, rel=1e-5)
    assert found["chi2"] == pytest.approx(1.125, rel=1e-5)
    assert found["ess"] == pytest.approx(6.25 / 8.5, rel=1e-5)
    assert found["logprob_gap_mean"] == found["logprob_gap_max"] == pytest.approx(math.log(2), rel=1e-5)
    assert found["clipped_share"] == 0.5
    assert found["age0_kl_k1"] == pytest.approx(-math.log(2), rel=1e-5) and found["age0_clipped_share"] == 1.0
    assert found["age3_kl_k1"] == pytest.approx(math.log(2), rel=1e-5) and found["age3_targets"] == 1.0


def test_measures_add_up_over_rows_in_any_grouping():
    """B7, C8. Sums of sums and maxima of maxima do not know how rows were spread."""
    logp_N, about = targets([0.1, 0.4, -0.3, 0.2], [1.0, 1.0, 1.0, 1.0], rows=[0, 0, 1, 2])
    loss = TokenLoss(torch.ones(4), torch.zeros(4, dtype=torch.bool))
    a, b, c = row_sums(logp_N.detach(), loss, torch.ones(4, dtype=torch.bool), about)
    left, right = add_up([add_up([a, b]), c]), add_up([c, add_up([b, a])])
    assert left == pytest.approx(right)
    assert left["max_gap"] == pytest.approx(0.4, abs=1e-6)

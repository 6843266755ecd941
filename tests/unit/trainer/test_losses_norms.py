"""Norms and divisors: whose say weighs how much, worked out by hand (B7)."""

import pytest
import torch

from services.trainer.core.divisor import divisor
from services.trainer.core.events import Batch
from services.trainer.losses import counts, keep, policy_loss
from tests.unit.trainer.loss_cases import Token, configuration, targets_of, train

ON_POLICY_LOSS = 1.0
"""−A·log π of a token with advantage 1 where log π = log μ = −1."""


def long_and_short(config):
    """trl#7206: execution A of 100 tokens with loss 2.0, B of 900 with .5, in two micro-steps. A made 2 calls, B 3."""
    given = [Token(0.0, 2.0, index // 50, 0) for index in range(100)]
    given += [Token(0.0, 0.5, index // 300, 1) for index in range(900)]
    return train(given, config, [range(100), range(100, 1000)])


@pytest.mark.parametrize(
    ("norm", "right"),
    [
        ("execution", (2.0 + 0.5) / 2),
        ("token", (100 * 2.0 + 900 * 0.5) / 1000),
        ("sequence", (2 * 2.0 + 3 * 0.5) / 5),
        ("constant", (100 * 2.0 + 900 * 0.5) / (2 * 10)),
    ],
)
def test_a_long_and_a_short_execution_under_each_norm(norm, right):
    """B7, trl#7206. 1.25 by execution; .65 by token (a mean of the micro-steps' means would say 1.25); 1.1 by call; 32.5 with C = 10."""
    found = long_and_short(configuration("policy_gradient", norm))
    assert right == pytest.approx({"execution": 1.25, "token": 0.65, "sequence": 1.1, "constant": 32.5}[norm])
    assert found.loss == pytest.approx(right, rel=1e-5)


def test_an_execution_in_two_parts_is_one_execution():
    """Agent-Lightning#593, B7. Two executions, one of two calls, all token losses 1: 1.0. Divided by the three parts it would be 2/3."""
    given = [Token(0.0, 1.0, 0, 0), Token(0.0, 1.0, 1, 0), Token(0.0, 1.0, 0, 1)]
    assert train(given, configuration("policy_gradient")).loss == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("norm", "right", "divisor_right"),
    [
        # execution 0 keeps 3 tokens: (1+1+2)/3; execution 1 keeps 1: 4
        ("execution", (4 / 3 + 4) / 2, 2),
        ("token", (1 + 1 + 2 + 4) / 4, 4),
        # calls: [1, 1], [2], [4]
        ("sequence", (1 + 2 + 4) / 3, 3),
        ("constant", 8 / (2 * 10), 20),
    ],
)
def test_masked_tokens_are_in_no_denominator(norm, right, divisor_right):
    """B7, C8. On-policy losses equal the advantages; the tokens with ratio e^2 = 7.39, out of the band, have advantage 100 and leave no trace. A call
    of which nothing is left is no call."""
    given = [
        Token(0.0, 1.0, 0, 0), Token(2.0, 100.0, 0, 0), Token(0.0, 1.0, 0, 0), Token(0.0, 2.0, 1, 0), Token(2.0, 100.0, 2, 0),
        Token(0.0, 4.0, 0, 1), Token(2.0, 100.0, 0, 1),
    ]  # fmt: skip
    found = train(given, configuration("policy_gradient", norm, ["mis_token"]))
    assert (found.loss, found.divisor) == (pytest.approx(right), divisor_right)


def test_an_execution_of_which_nothing_is_kept_is_no_execution():
    """B7, C8. The second is vetoed whole: the mean is that of the first, 1.0. One without gradient has loss 0 and counts: ½."""
    given = [Token(0.0, 1.0, 0, 0), Token(-11.0, 1.0, 0, 1), Token(0.0, 1.0, 0, 1)]
    config = configuration("policy_gradient", corrections=["veto"])
    assert train(given, config).loss == pytest.approx(1.0)
    assert train(given, config, untrained=(1, 5, 2)).loss == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("norm", "right"), [("execution", 2 + 3), ("token", 4 + 60), ("sequence", 3 + 7), ("constant", (2 + 3) * 10)]
)
def test_executions_without_gradient_count_in_every_mean(norm, right):
    """B7. 2 executions of 3 calls and 4 tokens are trained; 3 of 7 calls and 60 tokens have advantage 0 and no micro-step."""
    given = [Token(0.0, 1.0, 0, 0), Token(0.0, 1.0, 1, 0), Token(0.0, 1.0, 0, 1), Token(0.0, 1.0, 0, 1)]
    assert train(given, configuration("cispo", norm), untrained=(3, 60, 7)).divisor == right


@pytest.mark.parametrize("norm", ["execution", "token", "sequence", "constant"])
def test_an_empty_batch_is_divided_by_one(norm):
    """C5. Its zero gradient is given back."""
    batch = Batch((), (), 1)
    assert divisor(norm, 1, batch, {}) == 1.0


def test_a_sample_in_two_forwards_has_its_denominator_from_both():
    """B7, B8. Tokens of loss 1, 1 and 4 in two forwards, one more masked: counts 3, so 1/3 of each, as in one forward."""
    config = configuration("policy_gradient", corrections=["mis_token"])
    whole = [Token(0.0, 1.0, 0), Token(0.0, 1.0, 0), Token(0.0, 4.0, 1), Token(2.0, 9.0, 1)]
    parts = [targets_of(whole[:2]), targets_of(whole[2:])]
    with torch.no_grad():
        counts_M = sum(counts(keep(logp_N, about, config), about) for logp_N, about in parts)
    assert counts_M.tolist() == [3.0]
    total = sum(policy_loss(logp_N, about, config, counts_M)[0].item() for logp_N, about in parts)
    assert total == pytest.approx(2.0) and total == pytest.approx(policy_loss(*targets_of(whole), config)[0].item())

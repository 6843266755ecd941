"""What holds for every objective, combination of corrections and norm (B7, C8)."""

import math
from collections import Counter
from dataclasses import replace

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from services.trainer.losses import keep, policy_loss
from services.trainer.losses.metrics import add_up
from tests.unit.trainer.loss_cases import MASKS, batches, configuration, configurations, targets_of, train

quick = settings(max_examples=60, deadline=None, derandomize=True)


def close(value):
    return pytest.approx(value, rel=2e-4, abs=1e-5)


def same(left, right, order=None):
    """Loss, gradients (position `order[i]` of the left is position i of the right), divisor, and sums over the batch."""
    order = order or list(range(len(left.gradient)))
    assert right.loss == close(left.loss) and right.divisor == left.divisor
    assert [right.gradient[index] for index in range(len(order))] == close([left.gradient[index] for index in order])
    assert add_up(right.by_sample.values()) == close(add_up(left.by_sample.values()))


@quick
@given(batches(), configurations(), st.data())
def test_the_order_of_tokens_sequences_and_samples_means_nothing(batch, config, data):
    """B7. Any order of tokens, any names of sequences and samples."""
    order = data.draw(st.permutations(range(len(batch))))
    sequences, samples = data.draw(st.permutations(range(3))), data.draw(st.permutations(range(3)))
    renamed = [
        replace(batch[index], sequence=sequences[batch[index].sequence], sample=samples[batch[index].sample])
        for index in order
    ]
    same(train(batch, config), train(renamed, config), order)


@quick
@given(batches(), configurations(), st.data())
def test_micro_steps_and_cells_add_up_to_the_whole(batch, config, data):
    """B7, A8. Whole samples in any forwards, in any order; executions without gradient in the divisor."""
    place = data.draw(st.lists(st.integers(0, 2), min_size=3, max_size=3))
    parts = [[i for i, token in enumerate(batch) if place[token.sample] == number] for number in range(3)]
    untrained = data.draw(st.tuples(st.integers(0, 3), st.integers(0, 30), st.integers(0, 5)))
    parts = [part for part in data.draw(st.permutations(parts)) if part]
    same(train(batch, config, untrained=untrained), train(batch, config, parts, untrained))


@quick
@given(batches(), configurations())
def test_zero_advantage_gives_no_gradient(batch, config):
    """B7. Exactly zero: nothing to learn from an execution that is as good as its group."""
    found = train([replace(token, advantage=0.0) for token in batch], config)
    assert not any(found.gradient.values())


@quick
@given(batches(log_ratios=st.just(0.0)), configurations())
def test_on_policy_every_objective_is_the_plain_policy_gradient(batch, config):
    """B7, C8. ρ = 1: corrections keep and weigh everything with 1, clips are idle: −A over the norm's denominator, worked out here."""
    found = train(batch, config)
    for index, token in enumerate(batch):
        of_sample = sum(other.sample == token.sample for other in batch)
        of_sequence = sum((other.sample, other.sequence) == (token.sample, token.sequence) for other in batch)
        executions = len({other.sample for other in batch})
        sequences = len({(other.sample, other.sequence) for other in batch})
        denominator = {
            "execution": of_sample * executions,
            "token": len(batch),
            "sequence": of_sequence * sequences,
            "constant": 10 * executions,
        }[config.norm]
        assert found.gradient[index] == close(-token.advantage / denominator)
    assert all(sums["kept"] == sums["targets"] and sums["weight"] == sums["kept"] for sums in found.by_sample.values())


@quick
@given(batches(), configurations())
def test_what_a_mask_leaves_out_is_as_if_it_had_not_been_sampled(batch, config):
    """B7, C8. Corrections come before every denominator: without those tokens, and without masks, everything is the same."""
    logp_N, about = targets_of(batch)
    kept = [index for index, keeps in enumerate(keep(logp_N, about, config).tolist()) if keeps]
    assume(kept)
    found = train(batch, config)
    without_masks = configuration(
        config.objective,
        config.norm,
        [name for name in config.corrections if name not in MASKS],
        proximal=config.proximal,
    )
    rest = train([batch[index] for index in kept], without_masks)
    if config.norm == "constant":
        assume(len(rest.by_sample) == len(found.by_sample))
    assert found.loss == close(rest.loss) and found.divisor == rest.divisor
    assert [found.gradient[index] for index in kept] == close(list(rest.gradient.values()))
    assert not any(value for index, value in found.gradient.items() if index not in kept)


@quick
@given(batches(), configurations(norms=["token"]))
def test_gradients_have_their_closed_form(batch, config):
    """C8. Each objective's −coefficient·A over the kept tokens, written down a second time in plain arithmetic."""
    logp_N, about = targets_of(batch)
    keeps = keep(logp_N, about, config).tolist()
    kept = [token for token, stays in zip(batch, keeps, strict=True) if stays]
    found = train(batch, config)
    for index, (token, stays) in enumerate(zip(batch, keeps, strict=True)):
        expected = -coefficient(token, kept, config) * token.advantage / found.divisor if stays else 0.0
        assert found.gradient[index] == close(expected)


def coefficient(token, kept, config) -> float:
    """What ∇log π of a kept token is multiplied by, besides A."""
    cap = config.ratio_max
    mates = [other for other in kept if (other.sample, other.sequence) == (token.sample, token.sequence)]

    def proximal_share(other) -> float:
        """Of log ρ: how far the proximal policy is from the sampler."""
        return 1.0 if config.proximal == "current" or other.age == 0 else 1 - 1 / other.age

    def weight(share) -> float:
        if "tis_sequence" in config.corrections:
            return min(cap, math.exp(sum(share(other) * other.log_ratio for other in mates)))
        return min(cap, math.exp(share(token) * token.log_ratio))

    def clipped(ratio: float, low: float, high: float) -> float:
        """r where PPO's minimum has a gradient, else 0."""
        stops = ratio > 1 + high if token.advantage > 0 else ratio < 1 - low
        return 0.0 if stops else ratio

    rho = math.exp(token.log_ratio)
    match config.objective:
        case "policy_gradient":
            has_weights = {"tis_token", "tis_sequence"} & set(config.corrections)
            return weight(lambda _: 1.0) if has_weights else 1.0
        case "cispo" | "aipo":
            return min(cap, rho)
        case "grpo":
            return clipped(rho, 0.2, 0.2)
        case "gspo":
            s = math.exp(sum(other.log_ratio for other in mates) / len(mates))
            return weight(lambda _: 1.0) * clipped(s, 0.005, 0.005)
        case "decoupled_ppo":
            r = math.exp((1 - proximal_share(token)) * token.log_ratio)
            return weight(proximal_share) * clipped(r, 0.2, 0.2)
    raise AssertionError(config.objective)


@quick
@given(batches(), configurations(), st.lists(st.integers(0, 1), min_size=9, max_size=9))
def test_a_sample_may_be_cut_between_its_sequences_where_its_counts_are_known(batch, config, place):
    """B7, B8. Whole sequences in one of two forwards; a first pass counts what is kept of each sample."""
    parts = [[t for t in batch if place[3 * t.sample + t.sequence] == number] for number in (0, 1)]
    parts = [part for part in parts if part]
    kept: Counter[int] = Counter()
    for part in parts:
        for token, stays in zip(part, keep(*targets_of(part), config).tolist(), strict=True):
            kept[token.sample] += stays
    total, sums = 0.0, []
    for part in parts:
        counts_M = torch.tensor([float(kept[sample]) for sample in sorted({token.sample for token in part})])
        loss, of_samples = policy_loss(*targets_of(part), config, counts_M)
        total += loss.item()
        sums += of_samples
    whole = train(batch, config)
    assert total / whole.divisor == close(whole.loss) and add_up(sums) == close(add_up(whole.by_sample.values()))

"""Which models are trained packed, and that these give what their plain forward gives (B8)."""

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from gyre.config import TrainerConfig
from services.trainer.gradient import accumulate
from services.trainer.model import Policy
from services.trainer.packed.forest import forest_of
from services.trainer.packed.support import why_not_packed
from tests.unit.trainer.packing_cases import (
    CAPPED,
    PACKED,
    REFUSED,
    gradient_error,
    make_model,
    micro_of,
    plain_logprobs,
    random_tree,
)


def compare(policy: Policy, directory) -> None:
    """Log-probabilities and each parameter's gradient against each token's own plain forward, within 1e-5."""
    plain = AutoModelForCausalLM.from_pretrained(directory, attn_implementation="eager", dtype=torch.float32).eval()
    rng = np.random.default_rng(1)
    rows = [random_tree(rng, 6, 6), random_tree(rng, 4, 9)]
    found_N, expected_N = policy.target_logprobs(forest_of(rows)), plain_logprobs(plain, rows)
    torch.testing.assert_close(found_N, expected_N, rtol=1e-5, atol=1e-5)
    weights_N = torch.from_numpy(rng.standard_normal(len(found_N)).astype(np.float32))
    (found_N * weights_N).sum().backward()
    (expected_N * weights_N).sum().backward()
    pairs = zip(policy.model.parameters(), plain.parameters(), strict=True)
    pairs = [(mine.grad, theirs.grad) for mine, theirs in pairs if theirs.grad is not None]
    assert gradient_error(*zip(*pairs, strict=True)) < 1e-5


@pytest.mark.parametrize("kind", PACKED)
def test_families_of_models_are_packed_exactly(tmp_path, kind):
    """B8. Dense and mixtures of experts; windows of 5 to 7 in trees deeper than that; soft caps, sinks, latent attention, learned positions."""
    policy = Policy(make_model(tmp_path, kind, PACKED[kind]))
    assert policy.not_packed == ""
    compare(policy, tmp_path)


@pytest.mark.parametrize("kind", REFUSED)
def test_models_that_mix_tokens_otherwise_are_refused_and_trained_path_by_path(tmp_path, kind, caplog):
    """B8. Linear attention, state spaces, biases by distance, rotary embeddings by the row's length: the reason is said, the result right."""
    policy = Policy(make_model(tmp_path, kind, REFUSED[kind]))
    assert any(reason in policy.not_packed for reason in ("linear_attention", "rotary", "attention interface"))
    assert policy.not_packed in caplog.text
    compare(policy, tmp_path)


@pytest.mark.parametrize("kind", CAPPED)
def test_a_model_that_does_more_to_its_logits_than_its_output_layer_is_found_out_by_what_it_gives(tmp_path, kind):
    """B1, C8. Soft caps, scales and multipliers, each under its family's own name: the log-probabilities are those of the model's forward."""
    policy = Policy(make_model(tmp_path, kind, CAPPED[kind]))
    plain = AutoModelForCausalLM.from_pretrained(tmp_path, attn_implementation="eager", dtype=torch.float32).eval()
    rows = [random_tree(np.random.default_rng(3), 4, 6)]
    with torch.no_grad():
        torch.testing.assert_close(
            policy.target_logprobs(forest_of(rows)), plain_logprobs(plain, rows), rtol=1e-4, atol=1e-4
        )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_model_with_a_plain_output_layer_makes_only_the_logits_that_are_asked_for(tmp_path, dtype):
    """B8. Also in half precision: the probe compares bits, and knows no tolerance."""
    for kind in ("qwen3", "llama", "gemma", "gpt2"):
        assert Policy(make_model(tmp_path / kind, kind, PACKED[kind]), dtype=dtype)._plain_output, kind


class Smeared(torch.nn.Module):
    """An embedding that adds the token before, as a convolution would."""

    def __init__(self, inner: torch.nn.Embedding) -> None:
        super().__init__()
        self.inner, self.weight = inner, inner.weight

    def forward(self, ids_BT: torch.Tensor) -> torch.Tensor:
        embedded_BTD = self.inner(ids_BT)
        return embedded_BTD + embedded_BTD.roll(1, 1)


def test_a_model_that_is_not_what_its_configuration_says_is_found_out(tmp_path):
    """B8. The trial: a Qwen3 whose embedding looks at the token before it in the row, which in a packed row is another branch's."""
    policy = Policy(make_model(tmp_path, "qwen3", PACKED["qwen3"]))
    policy.model.set_attn_implementation("sdpa")
    policy.model.set_input_embeddings(Smeared(policy.model.get_input_embeddings()))
    assert "trial tree" in why_not_packed(policy.model)
    assert policy.model.config._attn_implementation == "sdpa"


def test_a_window_that_only_the_mask_knows_is_found_out(tmp_path):
    """B8. A sliding layer that does not say its window to the attention would be trained without one, and no short trial would show it."""
    policy = Policy(make_model(tmp_path, "mistral", {"sliding_window": 1000}))
    policy.model.set_attn_implementation("sdpa")
    policy.model.config.layer_types = ["sliding_attention", "full_attention"]
    assert "layer 1 is full_attention and attends with window 1000" in why_not_packed(policy.model)


def test_a_family_whose_windows_are_in_its_mask_alone_is_refused(tmp_path):
    """B8. PhiMoE, as transformers has it: no short trial could show a window of 1000."""
    policy = Policy(make_model(tmp_path, "phimoe", {"sliding_window": 1000, "num_local_experts": 4}))
    assert "window None instead of 1000" in policy.not_packed


def test_half_precision_agrees_to_a_hundredth(tmp_path):
    """B8. bf16: packed and path by path differ by rounding alone. Two trees: with more, path by path adds up more gradients and is off by more."""
    make_model(tmp_path, "qwen3", PACKED["qwen3"], spread=0.05)
    policies = [Policy(tmp_path, dtype=torch.bfloat16) for _ in range(2)]
    policies[1].not_packed = "to compare"
    policies[1].model.set_attn_implementation("sdpa")
    rng = np.random.default_rng(0)
    rows = [random_tree(rng, 8, 8, f"x{index}") for index in range(2)]
    for policy in policies:
        accumulate(policy, micro_of(rows), TrainerConfig(objective="policy_gradient"))
    mine, theirs = (
        torch.cat([parameter.grad.float().flatten() for parameter in policy.parameters]) for policy in policies
    )
    assert (mine - theirs).norm() < 1e-2 * theirs.norm()

"""Packed trees on a card: FlexAttention against transformers' own SDPA path by path (B8). Skipped where there is no CUDA."""

import pytest
import torch

from benchmarks.tree_training import cases, make_policies, measure

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")

MODEL = {
    "vocab_size": 1024, "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 64,
}  # fmt: skip


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-3), (torch.bfloat16, 2e-2)])
@pytest.mark.parametrize("name", ["paper_j5", "deep_all", "brush_all"])
def test_gradients_on_a_card_are_those_of_the_paths(name, dtype, tolerance):
    """B8. float32 goes through TF32-free kernels of another summation order, bf16 rounds at each step: the bounds are a few times these."""
    policies = make_policies(MODEL, "cuda", dtype)
    tree, paths_max = cases(MODEL["vocab_size"], 8)[name]
    assert measure(name, tree, paths_max, policies, 1)["grad_rel_error"] < tolerance

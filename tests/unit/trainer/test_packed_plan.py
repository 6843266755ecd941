"""Who sees whom in a forest, and which blocks compute it (B8)."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gyre.errors import InvalidInput
from services.trainer.packed import flex, plan
from services.trainer.packed.blocks import BlockPlan
from services.trainer.packed.blockwise import attend
from services.trainer.packed.flat import paths_of
from services.trainer.packed.forest import Forest, make_forest
from services.trainer.packed.plan import plan_blocks, visible_QK
from services.trainer.packed.trail import GradientTrail, Trail, plan_moves


def forest(lengths: list[int], parents: list[int], targets: list[int] | None = None) -> Forest:
    total = sum(lengths)
    chosen = np.array(targets or [], np.int64)
    return make_forest(np.arange(total), np.array(lengths), np.array(parents), chosen, np.ones(len(chosen), np.float32))


@st.composite
def forests(draw, runs_max: int = 14, length_max: int = 12) -> Forest:
    lengths = draw(st.lists(st.integers(1, length_max), min_size=1, max_size=runs_max))
    parents, stack = [], []
    for run in range(len(lengths)):
        stack = stack[: draw(st.integers(0, len(stack)))]
        parents.append(stack[-1] if stack else -1)
        stack.append(run)
    return forest(lengths, parents)


def contexts(found: Forest) -> list[list[int]]:
    """Tokens from the root up to and including each token, by walking up the runs."""
    ends: list[list[int]] = []
    result: list[list[int]] = []
    for start, length, parent in zip(found.starts_R, found.lengths_R, found.parents_R, strict=True):
        above = [] if parent < 0 else ends[parent]
        result += [above + list(range(start, token + 1)) for token in range(start, start + length)]
        ends.append(above + list(range(start, start + length)))
    return result


def seen(found: Forest, window: int | None = None) -> np.ndarray:
    """bool[T, T] from the contexts themselves."""
    mask = np.zeros((found.tokens, found.tokens), bool)
    for token, context in enumerate(contexts(found)):
        mask[token, context[-window:] if window else context] = True
    return mask


def test_positions_ends_and_predictors_of_a_small_tree():
    """B8. 0 1 2 ─┬─ 3 4 ─ 5 ; 6 7 hang from 0 1 2 too; 8 is a tree of its own. 6 is at position 3 and predicted by 2."""
    found = forest([3, 2, 1, 2, 1], [-1, 0, 1, 0, -1], [1, 3, 5, 6, 7])
    assert found.positions_T.tolist() == [0, 1, 2, 3, 4, 5, 3, 4, 0]
    assert found.ends_T.tolist() == [8, 8, 8, 6, 6, 6, 8, 8, 9]
    assert found.before_N.tolist() == [0, 2, 4, 2, 6]


def test_runs_out_of_order_are_refused():
    """B8. Depth first or not at all: the ends of subtrees say who sees whom."""
    with pytest.raises(InvalidInput, match="depth-first"):
        forest([3, 2, 1, 2], [-1, 0, 0, 1])
    with pytest.raises(InvalidInput, match="before the one"):
        forest([3, 2], [1, -1])


@settings(max_examples=300, deadline=None)
@given(forests(), st.sampled_from([None, 1, 3, 8]), st.sampled_from([1, 4, 256]), st.sampled_from([0, 30, 8192]))
def test_blocks_cover_all_tokens_and_see_exactly_their_contexts(found, window, queries_max, call_cost):
    """B8. For any forest, window, block size and price of a call: each query once, in order; visible keys are its context, `common` ones all's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan, "QUERIES_MAX", queries_max)
        patch.setattr(plan, "CALL_COST", call_cost)
        blocks = plan_blocks(found, window)
    assert [token for block in blocks for token in range(block.start, block.stop)] == list(range(found.tokens))
    expected = seen(found, window)
    for block in blocks:
        keys = block.keys_K()
        assert len(set(keys.tolist())) == len(keys) == block.keys
        mine = np.zeros((block.stop - block.start, found.tokens), bool)
        mine[:, keys] = visible_QK(found, block, window)
        assert (mine == expected[block.start : block.stop]).all()
        assert mine[:, keys[: block.common]].all()


def test_a_long_chain_costs_its_triangle_and_a_tree_its_unique_pairs():
    """B8. 4096 tokens in blocks of 128: Σ 128·(128 i) = 8.7 M pairs, 1.03 of the triangle's 8.4 M. Ten branches of 300 below 2000 tokens: no block
    sees another branch's keys unless that is cheaper than a call of its own."""
    chain = forest([4096], [-1])
    assert sum(block.pairs for block in plan_blocks(chain)) == 128 * 128 * 32 * 33 // 2
    tree = forest([2000] + [300] * 10, [-1] + [0] * 10)
    assert sum(block.pairs for block in plan_blocks(tree)) < 1.25 * seen(tree).sum()


def test_a_window_bounds_the_keys_of_a_block():
    """B8. Window 64 over 4096 tokens: 128 queries see 128 + 63 keys at most."""
    assert max(block.keys for block in plan_blocks(forest([4096], [-1]), 64)) == 128 + 63


@settings(max_examples=200, deadline=None)
@given(forests(), st.sampled_from([None, 1, 3, 8]), st.sampled_from([1, 4, 128]), st.sampled_from([0, 30, 4096]))
def test_the_trail_holds_each_blocks_keys_and_gives_each_token_its_gradient(found, window, queries_max, call_cost):
    """B8. Whatever lies over whatever: the keys of a block are those that were asked for, and of gradients nothing is lost or given twice."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan, "QUERIES_MAX", queries_max)
        patch.setattr(plan, "CALL_COST", call_cost)
        blocks = plan_blocks(found, window)
    moves, last_leave, places = plan_moves(blocks, found.positions_T)
    ids_T11 = torch.arange(found.tokens, dtype=torch.float32)[:, None, None]
    trail, gradients = Trail(ids_T11, places), GradientTrail(ids_T11, places)
    expected_T = torch.zeros(found.tokens)
    for number, block in enumerate(blocks):
        keys_1N1 = trail.move(moves[number], block.keys)
        assert keys_1N1.flatten().tolist() == block.keys_K().tolist()
        gradients.add(moves[number], (keys_1N1 + 1) * (number + 1))
        expected_T.index_add_(0, torch.from_numpy(block.keys_K()), (keys_1N1.flatten() + 1) * (number + 1))
    assert gradients.all(last_leave).flatten().tolist() == expected_T.tolist()


def test_a_token_comes_to_the_trail_once():
    """B8. Ten branches of 300 below 2000 tokens, each with two of 100: 7000 tokens come, not the 100,000 keys and more that the blocks need."""
    tree = forest(
        [2000] + [300, 100, 100] * 10, [-1] + [parent for run in range(10) for parent in (0, 3 * run + 1, 3 * run + 1)]
    )
    blocks = plan_blocks(tree)
    moves, _, places = plan_moves(blocks, tree.positions_T)
    assert sum(block.keys for block in blocks) > 100_000
    assert sum(move.stop - move.start for of_block in moves for move in of_block.come) == tree.tokens == 7000
    assert places == 2400


@settings(max_examples=40, deadline=None)
@given(forests(), st.sampled_from([None, 4]), st.sampled_from([None, 3.0]), st.booleans(), st.integers(0, 99))
def test_attention_and_its_gradient_are_those_of_the_dense_mask(found, window, softcap, has_sinks, seed):
    """B8. Four query heads on two key heads, in float64's light: 1e-5 relative, with caps and sinks too."""
    generator = torch.Generator().manual_seed(seed)
    query, key, value = (
        torch.randn(heads, found.tokens, 8, generator=generator, requires_grad=True) for heads in (4, 2, 2)
    )
    sinks = torch.randn(4, generator=generator, requires_grad=True) if has_sinks else None
    grad = torch.randn(4, found.tokens, 8, generator=generator)
    inputs = [query, key, value, *([sinks] if has_sinks else [])]
    block_plan = BlockPlan(found, window, torch.device("cpu"))
    out = attend(query, key, value, block_plan, 0.3, softcap, sinks)
    scores = query.double() @ key.double().repeat_interleave(2, 0).transpose(1, 2) * 0.3
    scores = softcap * torch.tanh(scores / softcap) if softcap else scores
    scores = scores.masked_fill(~torch.from_numpy(seen(found, window)), float("-inf"))
    if has_sinks:
        scores = torch.cat([scores, sinks.double()[:, None, None].expand(-1, found.tokens, 1)], -1)
    weights = scores.softmax(-1)[..., : found.tokens]
    expected = weights @ value.double().repeat_interleave(2, 0)
    torch.testing.assert_close(out.double(), expected, rtol=1e-5, atol=1e-5)
    for mine, theirs in zip(
        torch.autograd.grad(out, inputs, grad), torch.autograd.grad(expected, inputs, grad.double()), strict=True
    ):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)


@settings(max_examples=60, deadline=None)
@given(forests(), st.sampled_from([None, 1, 5, 20]))
def test_the_gpu_block_mask_is_the_forests(found, window):
    """B8. With blocks of 8: a full block has no pair unseen, one that is left out has none seen, whatever lies between is asked pair by pair."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(flex, "BLOCK_TOKENS", 8)
        partly, full = flex.block_kinds(found, window)
    expected = seen(found, window)
    assert not (partly & full).any()
    for query in range(len(partly)):
        for key in range(len(partly)):
            pairs = expected[query * 8 : query * 8 + 8, key * 8 : key * 8 + 8]
            assert not full[query, key] or pairs.all()
            assert partly[query, key] or full[query, key] or not pairs.any()


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.parametrize(("window", "heads", "softcap"), [(None, 4, None), (100, 6, None), (None, 4, 5.0)])
def test_flex_attention_computes_the_same_as_blocks(window, heads, softcap):
    """B8. Its forward runs on a CPU too (its backward does not): 500 tokens, two or three query heads a key head."""
    found = forest([150, 90, 60, 130, 70], [-1, 0, 1, 0, -1])
    generator = torch.Generator().manual_seed(0)
    query, key, value = (torch.randn(count, found.tokens, 16, generator=generator) for count in (heads, 2, 2))
    mask = flex.block_mask(found, window, torch.device("cpu"))
    out = flex.attend(query[None], key[None], value[None], mask, 0.25, softcap)[0]
    expected = attend(query, key, value, BlockPlan(found, window, torch.device("cpu")), 0.25, softcap)
    torch.testing.assert_close(out, expected, rtol=1e-5, atol=1e-5)


def test_paths_hold_each_target_once():
    """B8. 0 1 2 ─┬─ 3 4 and 5 6: targets 1, 4, 6: the first path trains 1 and 4, the second 6."""
    found = forest([3, 2, 2], [-1, 0, 0], [1, 4, 6])
    assert [(path.tolist(), places.tolist()) for path, places in paths_of(found)] == [
        ([0, 1, 2, 3, 4], [0, 1]), ([0, 1, 2, 5, 6], [2]),
    ]  # fmt: skip

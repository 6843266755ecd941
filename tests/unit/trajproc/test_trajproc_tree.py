"""The prefix tree (B3): token-exact, linear, the same in any order."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from services.trajproc.core.tree import build_tree
from tests.unit.trajproc.builders import call


def runs(tree):
    return [tree.flatten(tree.ends[index]).tolist() for index in range(len(tree.calls))]


def same_tree(one, other):
    """Node for node, bit for bit."""
    assert [record.call_id for record in one.calls] == [record.call_id for record in other.calls]
    for name in ("parents", "starts", "lengths", "owners", "lasts", "ends"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    for node in range(len(one.parents)):
        for name in ("tokens", "logprobs", "versions"):
            np.testing.assert_array_equal(getattr(one, name)(node), getattr(other, name)(node))
    assert one.set_aside == other.set_aside


@st.composite
def histories(draw):
    """Calls of one attempt: each continues an earlier context, cut anywhere, or hangs from the root. Few token values, so that
    contexts share prefixes also where no parent says so. Returns records and each call's context, kept beside."""
    records, contexts = [], []
    tokens = st.lists(st.integers(1, 3), max_size=4)
    for index in range(draw(st.integers(1, 8))):
        parent = draw(st.none() | st.integers(0, index - 1)) if index else None
        cut = draw(st.integers(0, len(contexts[parent]))) if parent is not None else 0
        delta = draw(tokens if cut else tokens.filter(bool))
        output = draw(tokens)
        role = draw(st.sampled_from(["main", "main-summary", "sub-agent", "sub-agent-summary", "side", "unknown"]))
        delivered = draw(st.integers(0, 4)) > 0
        records.append(call(delta, output, index=index, parent=parent, cut=cut, role=role, delivered=delivered))
        contexts.append((contexts[parent][:cut] if parent is not None else []) + delta + output)
    return records, contexts


def test_a_prompt_that_continues_its_parent_gives_one_path():
    """B3: [1,2,3]→[4,5], then [1…6]→[7,8]: tokens 1…8 once, and one leaf."""
    tree = build_tree([call([1, 2, 3], [4, 5]), call([6], [7, 8], index=1, parent=0, cut=5)])
    assert tree.context(1).tolist() == [1, 2, 3, 4, 5, 6, 7, 8]
    assert (tree.tokens_unique, tree.tokens_flat) == (8, 8)


def test_an_edited_history_gives_two_paths_that_share_what_was_not_edited():
    """B3: second prompt [1,2,3,99,5,6]: 1,2,3 shared; [4,5] a leaf of its own; 3+2 and 3+3+2 tokens flattened."""
    tree = build_tree([call([1, 2, 3], [4, 5]), call([99, 5, 6], [7, 8], index=1, parent=0, cut=3)])
    assert tree.context(0).tolist() == [1, 2, 3, 4, 5]
    assert tree.context(1).tolist() == [1, 2, 3, 99, 5, 6, 7, 8]
    assert (tree.tokens_unique, tree.tokens_flat) == (3 + 2 + 5, 5 + 8)


def test_an_unmatched_prompt_hangs_from_the_root_and_still_shares_equal_tokens():
    """B3: the same two calls, the second recorded whole (its parent was forgotten): the same tree."""
    tree = build_tree([call([1, 2, 3], [4, 5]), call([1, 2, 3, 4, 5, 6], [7, 8], index=1)])
    assert tree.tokens_unique == 8
    assert [(tree.tokens(node).tolist(), int(tree.owners[node])) for node in tree.path(tree.ends[1])] == [
        ([1, 2, 3], -1), ([4, 5], 0), ([6], -1), ([7, 8], 1),
    ]  # fmt: skip
    apart = build_tree([call([1, 2, 3], [4]), call([9, 9], [5], index=1)])
    assert (apart.parents[1:] == 0).sum() == 2


def test_a_record_whose_parent_is_missing_is_left_out_with_what_hangs_from_it():
    """B3: without the parent's tokens its context cannot be known, so it must not be trained."""
    orphan = call([6], [7], index=1, parent=5, cut=4)
    child = call([8], [9], index=2, parent=1, cut=6)
    tree = build_tree([call([1, 2, 3], [4, 5]), orphan, child])
    assert [record.call_index for record in tree.calls] == [0]
    assert {problem.reason for problem in tree.set_aside.values()} == {"orphan"} and len(tree.set_aside) == 2


def test_records_whose_lengths_do_not_add_up_are_left_out():
    """B1: a cut beyond the parent's context, or too few log-probabilities, can only be a defect."""
    beyond = call([6], [7], index=1, parent=0, cut=99)
    assert len(build_tree([call([1], [2]), beyond]).set_aside) == 1


@settings(max_examples=150, deadline=None)
@given(histories())
def test_flattening_gives_back_every_prompt_and_output_bit_for_bit(history):
    """B3: contexts kept beside the records are the tree's."""
    records, contexts = history
    tree = build_tree(records)
    assert runs(tree) == contexts
    above = tree.parents[1:]
    assert (tree.lengths[1:] > 0).all() and (tree.starts[1:] == (tree.starts + tree.lengths)[above]).all()
    assert (above < np.arange(1, len(tree.parents))).all() and (tree.lasts[1:] <= tree.lasts[above]).all()


@settings(max_examples=60, deadline=None)
@given(histories(), st.randoms(use_true_random=False))
def test_any_order_of_arrival_and_any_repeat_gives_the_same_tree(history, random):
    """B3: by call_index order, each call id once."""
    records, _ = history
    shuffled = records + records[: len(records) // 2]
    random.shuffle(shuffled)
    first, second = build_tree(records), build_tree(shuffled)
    assert runs(first) == runs(second)
    same_tree(first, second)


@settings(max_examples=60, deadline=None)
@given(histories())
def test_no_two_children_of_a_node_begin_alike(history):
    """B3: the common prefix of any two contexts is stored once."""
    tree = build_tree(history[0])
    prefixes = {tuple(context[:end]) for context in history[1] for end in range(1, len(context) + 1)}
    assert tree.tokens_unique == len(prefixes)


def test_a_tree_of_many_calls_costs_its_new_tokens_not_its_flattened_ones():
    """B3: 2,000 calls of 50 new tokens each: 100,000 tokens stored, 50·(1+2+…+2000) ≈ 100 million flattened."""
    records = [call(list(range(1, 41)), list(range(50, 60)))]
    for index in range(1, 2000):
        records.append(call(list(range(1, 41)), list(range(50, 60)), index=index, parent=index - 1, cut=50 * index))
    tree = build_tree(records)
    assert tree.tokens_unique == 100_000
    assert len(tree.parents) == 1 + 2 * 2000, "a prompt and an output node for each call, and the root"

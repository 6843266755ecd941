"""Role-ordered sampling and rows (B5, B6, B7)."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from gyre.records import array
from services.trajproc.core.rows import make_rows, targets_of, version_range
from services.trajproc.core.sampling import choose_paths, leaves
from services.trajproc.core.tree import build_tree
from tests.unit.trajproc.builders import call
from tests.unit.trajproc.test_trajproc_tree import histories

TRAINED = ("main", "main-summary", "sub-agent", "sub-agent-summary")


def rows_of(records, paths_max=5, advantage=1.0):
    tree = build_tree(records)
    return make_rows(tree, choose_paths(tree, "g000000-e0-a1", paths_max), "g000000-e0-a1", advantage)


def targets(row) -> list[int]:
    return array(row.tokens, "int32")[array(row.targets, "uint8") == 1].tolist()


def test_one_path_trains_the_sampled_tokens_of_both_calls():
    """B6: [1,2,3]→[4,5], [1…6]→[7,8]: one row, targets 4,5,7,8, each of weight 1/4."""
    (row,) = rows_of([call([1, 2, 3], [4, 5]), call([6], [7, 8], index=1, parent=0, cut=5, version=3)])
    assert array(row.tokens, "int32").tolist() == [1, 2, 3, 4, 5, 6, 7, 8]
    assert targets(row) == [4, 5, 7, 8]
    assert array(row.weights, "float32").tolist() == [0, 0, 0, 0.25, 0.25, 0, 0.25, 0.25]
    assert array(row.versions, "int32").tolist() == [-1, -1, -1, 0, 0, -1, 3, 3]
    np.testing.assert_allclose(array(row.logprobs, "float32"), [0, 0, 0, -0.01, -0.011, 0, -0.02, -0.021], rtol=1e-6)


def test_an_edited_history_trains_the_abandoned_reply_in_a_row_of_its_own():
    """B6: second prompt [1,2,3,99,5,6]: 4,5 in one row, 7,8 in the other, though 5 stands in both as a token."""
    rows = rows_of([call([1, 2, 3], [4, 5]), call([99, 5, 6], [7, 8], index=1, parent=0, cut=3)])
    assert sorted(map(targets, rows)) == [[4, 5], [7, 8]]
    assert sum(array(row.weights, "float32").sum() for row in rows) == 1.0


def test_higher_roles_go_first_and_side_calls_are_never_trained():
    """B5: main > main-summary > sub-agent > sub-agent-summary; `side` and `unknown` stay on record only."""
    roles = ["unknown", "sub-agent-summary", "side", "sub-agent", "main-summary", "main"]
    tree = build_tree([call([100 + index], [index + 1], index=index, role=role) for index, role in enumerate(roles)])
    chosen = choose_paths(tree, "g000000-e0-a1", 5)
    assert [tree.calls[int(np.flatnonzero(tree.ends == path.leaf)[0])].role for path in chosen] == list(TRAINED)


def test_a_side_call_below_a_main_context_does_not_hide_it():
    """B5: the leaf is where no further *trained* call ends; the side call's own tokens are no targets."""
    (row,) = rows_of([call([1], [2, 3]), call([4], [5], index=1, parent=0, cut=3, role="side")])
    assert targets(row) == [2, 3]


def test_a_reply_that_never_arrived_is_no_leaf_unless_something_continues_from_it():
    """B1: it had no part in the outcome; a continuation shows that it did arrive (the retry got the same record)."""
    lost = call([1], [2, 3], delivered=False)
    assert len(leaves(build_tree([lost]))[0]) == 0
    (row,) = rows_of([lost, call([4], [5], index=1, parent=0, cut=3)])
    assert targets(row) == [2, 3, 5]


def test_at_most_j_max_paths_and_the_draw_follows_untrained_tokens():
    """B5: leaves of 1 and 9 untrained tokens: over 400 samples the first path is the long one in 90 % (±4 standard errors of 1.5 %)."""
    tree = build_tree([call([1], [2]), call([3], list(range(10, 19)), index=1)])
    first = [choose_paths(tree, f"g{number:06d}-e0-a1", 1)[0].leaf for number in range(400)]
    assert abs(np.mean([leaf == tree.ends[1] for leaf in first]) - 0.9) < 0.06
    many = build_tree([call([index + 1], [50], index=index) for index in range(9)])
    assert len(choose_paths(many, "g000000-e0-a1", 5)) == 5


def test_calls_at_different_temperatures_give_a_row_each():
    """B7: a row has one temperature; every target still stands in one row only."""
    rows = rows_of([call([1], [2]), call([3], [4], index=1, parent=0, cut=2, temperature=0.5)])
    assert {row.temperature: targets(row) for row in rows} == {1.0: [2], 0.5: [4]}


def test_versions_are_kept_by_token_and_summarised_as_three_numbers():
    """slime#2092: versions 2, 4, 6 over 2, 2 and 8 tokens: oldest 2, mean (4+8+48)/12 = 5, newest 6."""
    tree = build_tree([
        call([1], [10, 11], version=2), call([2], [12, 13], index=1, parent=0, cut=3, version=4),
        call([3], list(range(20, 28)), index=2, parent=1, cut=6, version=6),
    ])  # fmt: skip
    assert version_range(tree) == (2, 5.0, 6)


@settings(max_examples=150, deadline=None)
@given(histories(), st.integers(1, 5))
def test_every_target_is_in_exactly_one_row_and_weights_of_an_execution_sum_to_one(history, paths_max):
    """B6, B7: for any history; a target is a sampled token in its context, named by the tokens up to and including it."""
    rows = rows_of(history[0], paths_max, advantage=-0.5)
    seen = []
    for row in rows:
        tokens, mask = array(row.tokens, "int32").tolist(), array(row.targets, "uint8")
        assert mask[0] == 0
        seen += [tuple(tokens[: position + 1]) for position in np.flatnonzero(mask)]
        advantages, weights = array(row.advantages, "float32"), array(row.weights, "float32")
        assert set(advantages[mask == 1]) <= {np.float32(-0.5)} and not advantages[mask == 0].any()
        assert not weights[mask == 0].any() and (array(row.versions, "int32")[mask == 1] >= 0).all()
    assert len(seen) == len(set(seen))
    if rows:
        assert abs(sum(array(row.weights, "float32").sum(dtype=float) for row in rows) - 1) < 1e-5


@settings(max_examples=100, deadline=None)
@given(histories())
def test_with_paths_enough_every_trainable_token_is_trained(history):
    """B5: sampling ends when nothing is unused: all tokens that trained calls sampled and that a delivered trained call holds."""
    records, contexts = history
    tree = build_tree(records)
    chosen = choose_paths(tree, "g000000-e0-a1", 99)
    expected = set()
    for holder, context in zip(records, contexts, strict=True):
        if holder.role not in TRAINED or not holder.delivered:
            continue
        for sampler, whole in zip(records, contexts, strict=True):
            if sampler.role in TRAINED:
                ends = range(sampler.prompt_tokens + 1, len(whole) + 1)
                expected |= {tuple(whole[:end]) for end in ends if context[:end] == whole[:end]}
    assert targets_of(tree, chosen) == len(expected)

"""Role-ordered sampling (B5, B6)."""

import numpy as np
from hypothesis import given, settings

from services.trajproc.core.rows import targets_of, version_range
from services.trajproc.core.sampling import choose_paths, leaves, trained_calls
from services.trajproc.core.tree import build_tree
from tests.unit.trajproc.builders import call
from tests.unit.trajproc.test_trajproc_tree import histories

TRAINED = ("main", "main-summary", "sub-agent", "sub-agent-summary")


def targets(records, paths_max=5) -> list[int]:
    """Target tokens of the chosen paths."""
    tree = build_tree(records)
    trained = trained_calls(tree)
    chosen = [node for path in choose_paths(tree, "g000000-e0-a1", paths_max) for node in path.fresh]
    return [token for node in sorted(chosen) if trained[tree.owners[node]] for token in tree.tokens(node).tolist()]


def test_higher_roles_go_first_and_side_calls_are_never_trained():
    """B5: main > main-summary > sub-agent > sub-agent-summary; `side` and `unknown` stay on record only."""
    roles = ["unknown", "sub-agent-summary", "side", "sub-agent", "main-summary", "main"]
    tree = build_tree([call([100 + index], [index + 1], index=index, role=role) for index, role in enumerate(roles)])
    chosen = choose_paths(tree, "g000000-e0-a1", 5)
    assert [tree.calls[int(np.flatnonzero(tree.ends == path.leaf)[0])].role for path in chosen] == list(TRAINED)


def test_a_side_call_below_a_main_context_does_not_hide_it():
    """B5: the leaf is where no further *trained* call ends; the side call's own tokens are no targets."""
    assert targets([call([1], [2, 3]), call([4], [5], index=1, parent=0, cut=3, role="side")]) == [2, 3]


def test_a_reply_that_never_arrived_is_no_leaf_unless_something_continues_from_it():
    """B1: it had no part in the outcome; a continuation shows that it did arrive (the retry got the same record)."""
    lost = call([1], [2, 3], delivered=False)
    assert len(leaves(build_tree([lost]))[0]) == 0
    assert targets([lost, call([4], [5], index=1, parent=0, cut=3)]) == [2, 3, 5]


def test_at_most_j_max_paths_and_the_draw_follows_untrained_tokens():
    """B5: leaves of 1 and 9 untrained tokens: over 400 samples the first path is the long one in 90 % (±4 standard errors of 1.5 %)."""
    tree = build_tree([call([1], [2]), call([3], list(range(10, 19)), index=1)])
    first = [choose_paths(tree, f"g{number:06d}-e0-a1", 1)[0].leaf for number in range(400)]
    assert abs(np.mean([leaf == tree.ends[1] for leaf in first]) - 0.9) < 0.06
    many = build_tree([call([index + 1], [50], index=index) for index in range(9)])
    assert len(choose_paths(many, "g000000-e0-a1", 5)) == 5


def test_versions_are_kept_by_token_and_summarised_as_three_numbers():
    """slime#2092: versions 2, 4, 6 over 2, 2 and 8 tokens: oldest 2, mean (4+8+48)/12 = 5, newest 6."""
    tree = build_tree([
        call([1], [10, 11], version=2), call([2], [12, 13], index=1, parent=0, cut=3, version=4),
        call([3], list(range(20, 28)), index=2, parent=1, cut=6, version=6),
    ])  # fmt: skip
    assert version_range(tree) == (2, 5.0, 6)


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

"""What does not arrive as it should has a defined meaning (B1, B3): one test a case of services/trajproc/core/tree/__init__.py's table."""

import msgspec
import numpy as np
import pytest

from gyre.records import pack
from services.trajproc.core.rows import version_range
from services.trajproc.core.sampling import choose_paths
from services.trajproc.core.tree import Known, TreeBuilder, build_tree, problem_of
from tests.unit.trajproc.builders import call
from tests.unit.trajproc.generated import SAMPLE

changed = msgspec.structs.replace


def nodes(tree):
    """(tokens, owner) of each node in depth-first order."""
    return [(tree.tokens(node).tolist(), int(tree.owners[node])) for node in range(1, len(tree.parents))]


def trained(tree, paths_max=0, **how):
    """Tokens of the targets, in depth-first order."""
    fresh = sorted(node for path in choose_paths(tree, SAMPLE, paths_max, **how) for node in path.fresh)
    roles = how.get("class_order", ("main", "main-summary", "sub-agent", "sub-agent-summary"))
    return [
        token for node in fresh if tree.owners[node] >= 0 and tree.calls[tree.owners[node]].role in roles
        for token in tree.tokens(node).tolist()
    ]  # fmt: skip


def test_a_retried_call_whose_first_try_was_abandoned_is_trained_once():
    """AReaL#1498: the harness timed out and asked again: the abandoned reply [4,5] stays on record untrained; [6] and what follows are trained."""
    lost, again = call([1, 2], [4, 5], delivered=False), call([1, 2], [6], index=1)
    tree = build_tree([lost, again, call([7], [8], index=2, parent=1, cut=3)])
    assert nodes(tree) == [([1, 2], -1), ([4, 5], 0), ([6], 1), ([7], -1), ([8], 2)]
    assert trained(tree) == [6, 8]


def test_a_retry_that_got_the_same_record_adds_nothing():
    """AReaL#1498: same call, same record: told twice it is there once."""
    tree = build_tree([call([1], [2, 3]), call([1], [2, 3])])
    assert nodes(tree) == [([1], -1), ([2, 3], 0)]


def test_of_two_records_under_one_call_id_the_first_counts():
    """B1: a call id is a natural key; the second can only be a redelivery."""
    assert nodes(build_tree([call([1], [2]), call([1], [9])])) == [([1], -1), ([2], 0)]


def test_a_record_waits_for_its_parent_and_takes_its_place_when_the_parent_comes():
    """B3: grandchild, child, parent: nothing has a place until the parent is here, then all have; nobody is an orphan any more."""
    builder = TreeBuilder()
    chain = [call([1], [2]), call([3], [4], index=1, parent=0, cut=2), call([5], [6], index=2, parent=1, cut=4)]
    assert builder.add(chain[2]) is None and builder.add(chain[1]) is None
    assert builder.calls == [] and len(builder.problems) == 2 and len(builder.tree().parents) == 1
    builder.add(chain[0])
    assert builder.problems == {} and builder.tree().context(2).tolist() == [1, 2, 3, 4, 5, 6]


def test_what_hangs_from_a_record_set_aside_is_an_orphan_and_the_rest_stays():
    """B1: call 1 has one log-probability for two tokens; call 2 hangs from it; calls 0 and 3 are trained."""
    broken = changed(call([3], [4, 5], index=1, parent=0, cut=2), logprobs=pack([-0.1], "float32"))
    tree = build_tree([
        call([1], [2]), broken, call([6], [7], index=2, parent=1, cut=5), call([8], [9], index=3, parent=0, cut=2),
    ])  # fmt: skip
    assert {name[-2:]: problem.reason for name, problem in tree.set_aside.items()} == {"c1": "lengths", "c2": "orphan"}
    assert trained(tree) == [2, 9]


def test_two_calls_racing_from_one_context_are_two_branches():
    """B3: both continue call 0 at 3 tokens; what they share, [4] and the sampled 5, is there once and the earlier call's; then they part."""
    tree = build_tree([
        call([1], [2, 3]), call([4], [5, 6], index=1, parent=0, cut=3), call([4], [5, 7, 8], index=2, parent=0, cut=3),
    ])  # fmt: skip
    assert nodes(tree) == [([1], -1), ([2, 3], 0), ([4], -1), ([5], 1), ([6], 1), ([7, 8], 2)]
    assert trained(tree) == [2, 3, 5, 6, 7, 8]


def test_a_token_that_two_calls_sampled_belongs_to_the_trained_role():
    """B6: a side call sampled it first, but a side call is never trained; so that it is, the main call owns it, with its own log-probability."""
    tree = build_tree([call([1], [2, 3], role="side"), call([1], [2], index=1)])
    assert nodes(tree) == [([1], -1), ([2], 1), ([3], 0)]
    assert tree.logprobs(2).tolist() == [np.float32(-0.02)], "call 1's own, see builders.call"


def test_a_call_that_sampled_nothing_ends_where_its_prompt_ends():
    """B3: aborted before its first token: it owns nothing, and what its prompt holds of call 0 is trained all the same."""
    tree = build_tree([call([1], [2]), call([3], [], index=1, parent=0, cut=2)])
    assert nodes(tree) == [([1], -1), ([2], 0), ([3], -1)] and tree.context(1).tolist() == [1, 2, 3]
    assert trained(tree) == [2]
    assert trained(build_tree([call([1], [])])) == []


def test_an_aborted_and_continued_call_keeps_the_version_of_every_token():
    """slime#2092: 2, 2 and 8 tokens of one output under versions 2, 4, 6: oldest 2, mean (2·2 + 2·4 + 8·6)/12 = 5, newest 6."""
    versions = [2] * 2 + [4] * 2 + [6] * 8
    tree = build_tree([changed(call([1], list(range(12))), versions=pack(versions, "int32"))])
    assert tree.versions(2).tolist() == versions and version_range(tree) == (2, 5.0, 6)


def test_a_parent_may_be_cut_in_the_middle_of_its_output():
    """B3: call 1 keeps [1,2,3] of [1]→[2,3,4,5]: 2,3 are shared, 4,5 stay a path of their own; all four keep their owner and numbers."""
    tree = build_tree([call([1], [2, 3, 4, 5]), call([9], [8], index=1, parent=0, cut=3)])
    assert nodes(tree) == [([1], -1), ([2, 3], 0), ([4, 5], 0), ([9], -1), ([8], 1)]
    np.testing.assert_array_equal(
        np.concatenate([tree.logprobs(2), tree.logprobs(3)]), np.frombuffer(tree.calls[0].logprobs, "f4")
    )
    assert trained(tree) == [2, 3, 4, 5, 8]


def test_a_cut_that_goes_on_as_its_parent_did_leaves_no_seam():
    """B3: call 1 was cut at 2 and brings the very token that stood there: the tree is that of call 0 with a branch after it."""
    tree = build_tree([call([1, 2, 3], [4]), call([3, 9], [5], index=1, parent=0, cut=2)])
    assert nodes(tree) == [([1, 2, 3], -1), ([4], 0), ([9], -1), ([5], 1)]


def test_a_prompt_that_equals_a_context_samples_below_it():
    """B3: call 1's prompt is exactly call 0's context (an assistant prefix continued): no new prompt token, its output goes on."""
    tree = build_tree([call([1], [2]), call([], [3], index=1, parent=0, cut=2)])
    assert nodes(tree) == [([1], -1), ([2], 0), ([3], 1)]
    assert trained(tree) == [2, 3]


def test_ten_candidate_paths_of_1716_messages_hold_1347_distinct_ones():
    """B3, the paper's example, one token a message: a trunk of 41 that ten branches share saves 9·41 = 369 = 1716 − 1347; the branches are
    1347 − 41 = 1306 = 4·130 + 6·131 long."""
    records = [call(list(range(1, 41)), [41])]
    for branch in range(10):
        length = 130 if branch < 4 else 131
        delta = [1000 * (branch + 1) + step for step in range(length - 1)]
        records.append(call(delta, [7], index=branch + 1, parent=0, cut=41))
    tree = build_tree(records)
    paths = choose_paths(tree, SAMPLE, 0)
    assert (tree.tokens_flat, tree.tokens_unique, len(paths)) == (1716, 1347, 10)


def test_uncapped_sampling_trains_all_and_left_out_classes_are_not_trained():
    """B5: seven leaves, J_max 0 takes all; class_order turns the classes round, and what it leaves out is context only."""
    tree = build_tree(
        [call([1], [2]), *(call([3 + n], [20 + n], index=n + 1, parent=0, cut=2, role="sub-agent") for n in range(7))]
    )
    assert len(choose_paths(tree, SAMPLE, 0)) == 7 and trained(tree) == [2, *range(20, 27)]
    first = choose_paths(tree, SAMPLE, 1, class_order=("sub-agent", "main"))
    assert tree.calls[int(np.flatnonzero(tree.ends == first[0].leaf)[0])].role == "sub-agent"
    assert trained(tree, class_order=("main",)) == [2]


def test_with_j_max_five_the_draw_is_the_samples_own():
    """B5: twenty branches, five drawn: the same five whenever asked, others for another sample (one in 15,504 sets would be the same)."""
    tree = build_tree([call([9, n + 1], [50], index=n) for n in range(20)])
    drawn = [[path.leaf for path in choose_paths(tree, sample, 5)] for sample in (SAMPLE, SAMPLE, "g000000-e1-a1")]
    assert drawn[0] == drawn[1] != drawn[2] and len(set(drawn[0])) == 5


@pytest.mark.parametrize(("change", "reason", "words"), [
    ({"logprobs": pack([-0.1], "float32")}, "lengths", "2 output tokens, 1 log-probabilities, 2 versions"),
    ({"versions": pack([0], "int32")}, "lengths", "2 output tokens, 2 log-probabilities, 1 versions"),
    ({"output_ids": b"\0\0\0"}, "lengths", "output_ids: no whole number of 4-byte items"),
    ({"prompt_tokens": 3}, "lengths", "a prompt of 3 tokens is 0 of the parent's and 1 new"),
    ({"parent_tokens": 1, "prompt_tokens": 2}, "lengths", "a prompt of 2 tokens is 1 of the parent's and 1 new"),
    ({"output_ids": pack([1, -2], "int32")}, "tokens_out_of_range", "output_ids holds -2"),
    ({"logprobs": pack([-0.1, np.nan], "float32")}, "logprobs", "log-probability nan at output token 1"),
    ({"logprobs": pack([0.25, -0.1], "float32")}, "logprobs", "log-probability 0.25 at output token 0"),
    ({"versions": pack([0, 7], "int32")}, "version_unknown", "version 7 was never published"),
    ({"parent": "g000001-e0-a1-c0"}, "foreign_parent", "its parent is g000001-e0-a1-c0"),
    ({"parent": "g000000-e0-a2-c0"}, "foreign_parent", "its parent is g000000-e0-a2-c0"),
])  # fmt: skip
def test_why_a_record_is_set_aside(change, reason, words):
    """B1: each by hand, from a sound record of prompt [1] and output [2,3] under version 0."""
    sound, known = call([1], [2, 3]), Known(versions={0, 1})
    assert problem_of(sound, known) is None
    assert problem_of(changed(sound, **change), known) == (reason, words)


def test_a_log_probability_a_rounding_above_zero_is_sound():
    """B1: a sure token's log-probability is 0; float32 sums over a vocabulary bring it to a few 1e-7 above."""
    assert problem_of(changed(call([1], [2]), logprobs=pack([3e-7], "float32"))) is None


def test_the_caller_says_whose_a_call_is():
    """B1: with a look-up by records instead of names, a parent that belongs elsewhere is told apart from one that never came."""
    known = Known(sample_of={"g000000-e0-a1-c0": "g000000-e5-a1"}.__getitem__)
    assert problem_of(call([2], [3], index=1, parent=0, cut=1), known).reason == "foreign_parent"


def test_many_cuts_and_long_chains_find_their_places():
    """B3: 4,000 calls cut one long output at every position, 4,000 continue each other and are then cut near the root: each context is
    right, whatever jump pointers and runs stand between."""
    records = [call([1], list(range(1, 4001)))]
    records += [call([5000 + n], [], index=n, parent=0, cut=n) for n in range(1, 4001)]
    tree = build_tree(records)
    assert tree.context(4000).tolist() == [1, *range(1, 4000), 9000] and tree.tokens_unique == 8001
    chain = [call([1], [2])] + [call([3], [2], index=n, parent=n - 1, cut=2 * n) for n in range(1, 4000)]
    chain += [call([4], [5], index=n, parent=3999, cut=1 + n % 7) for n in range(4000, 8000)]
    tree = build_tree(chain)
    assert tree.context(4004).tolist() == [1, 4, 5], "4004 % 7 = 0: cut after the first token"
    assert len(choose_paths(tree, SAMPLE, 0)) == 8

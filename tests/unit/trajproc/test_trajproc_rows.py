"""Packed rows and micro-steps of whole samples (B6, B7, B8)."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from gyre.records import Row, array
from services.trajproc.core.pack import pack_samples
from services.trajproc.core.rows import make_rows, targets_of
from services.trajproc.core.sampling import choose_paths
from services.trajproc.core.tree import build_tree
from tests.unit.trajproc.builders import call
from tests.unit.trajproc.test_trajproc_tree import histories

SAMPLE = "g000000-e0-a1"


def rows_of(records, paths_max=5, tokens_max=8192) -> list[Row]:
    """Call i has advantage i + 1."""
    tree = build_tree(records)
    advantages_C = np.arange(1.0, len(tree.calls) + 1)
    return make_rows(tree, choose_paths(tree, SAMPLE, paths_max), SAMPLE, advantages_C, tokens_max)


def of(row: Row, name: str, dtype: str = "int32") -> list:
    return array(getattr(row, name), dtype).tolist()


def contexts(row: Row) -> list[tuple[int, ...]]:
    """For each token: the tokens from the root up to and including it, read from the runs as the record describes them."""
    tokens, found, ends = of(row, "tokens"), [], []
    for length, parent in zip(of(row, "run_lengths"), of(row, "run_parents"), strict=True):
        context = () if parent < 0 else ends[parent]
        for token in tokens[len(found) : len(found) + length]:
            context += (token,)
            found.append(context)
        ends.append(context)
    return found


def trained(row: Row) -> list[tuple[int, ...]]:
    return [context for context, call in zip(contexts(row), of(row, "sequences"), strict=True) if call >= 0]


def test_one_path_is_one_run_and_trains_the_sampled_tokens_of_both_calls():
    """B6: [1,2,3]→[4,5], [1…6]→[7,8]: one run, targets 4,5,7,8 of calls 0,0,1,1."""
    (row,) = rows_of([call([1, 2, 3], [4, 5]), call([6], [7, 8], index=1, parent=0, cut=5, version=3)])
    assert of(row, "tokens") == [1, 2, 3, 4, 5, 6, 7, 8]
    assert (of(row, "run_lengths"), of(row, "run_parents")) == ([8], [-1])
    assert of(row, "sequences") == [-1, -1, -1, 0, 0, -1, 1, 1]
    assert of(row, "versions") == [0, 0, 3, 3]
    assert of(row, "advantages", "float32") == [1, 1, 2, 2]
    np.testing.assert_allclose(of(row, "logprobs", "float32"), [-0.01, -0.011, -0.02, -0.021], rtol=1e-6)


def test_an_edited_history_shares_its_prefix_and_trains_both_replies():
    """B6, B8: second prompt [1,2,3,99,5,6]: 1 2 3 stand once; 4,5 and 7,8 are trained, the 5 of the prompt is not."""
    (row,) = rows_of([call([1, 2, 3], [4, 5]), call([99, 5, 6], [7, 8], index=1, parent=0, cut=3)])
    assert of(row, "tokens") == [1, 2, 3, 4, 5, 99, 5, 6, 7, 8]
    assert (of(row, "run_lengths"), of(row, "run_parents")) == ([3, 2, 5], [-1, 0, 0])
    assert trained(row) == [(1, 2, 3, 4), (1, 2, 3, 4, 5), (1, 2, 3, 99, 5, 6, 7), (1, 2, 3, 99, 5, 6, 7, 8)]


def test_every_call_has_its_own_temperature():
    """B7: targets drawn at 1.0 and 0.5 in one row."""
    (row,) = rows_of([call([1], [2]), call([3], [4], index=1, parent=0, cut=2, temperature=0.5)])
    assert of(row, "temperatures", "float32") == [1, 0.5]


def test_what_no_target_needs_is_left_out():
    """B8: a side call below the trained reply, and prompt tokens that only it continues, cost nothing."""
    (row,) = rows_of([call([1], [2, 3]), call([4], [5], index=1, parent=0, cut=3, role="side")])
    assert of(row, "tokens") == [1, 2, 3]


def test_a_row_over_the_budget_is_cut_by_calls_with_all_their_ancestors():
    """B8: 1 2 3 ─ 4 5 and 1 2 3 ─ 6 7: 7 unique tokens. Budget 6: two rows of 5, each with the prefix; no target twice."""
    records = [call([1, 2, 3], [4, 5]), call([], [6, 7], index=1, parent=0, cut=3)]
    assert [of(row, "tokens") for row in rows_of(records)] == [[1, 2, 3, 4, 5, 6, 7]]
    rows = rows_of(records, tokens_max=6)
    assert [(row.part, of(row, "tokens"), of(row, "sequences")) for row in rows] == [
        (0, [1, 2, 3, 4, 5], [-1, -1, -1, 0, 0]), (1, [1, 2, 3, 6, 7], [-1, -1, -1, 1, 1]),
    ]  # fmt: skip


@settings(max_examples=200, deadline=None)
@given(histories(), st.integers(1, 5), st.sampled_from([1, 6, 12, 8192]))
def test_every_target_is_in_exactly_one_row_in_its_own_context(history, paths_max, tokens_max):
    """B6, B7, B8: for any history and cut: each sampled token trained once, in its context, all of a call's in one row."""
    records = history[0]
    tree = build_tree(records)
    paths = choose_paths(tree, SAMPLE, paths_max)
    rows = rows_of(records, paths_max, tokens_max)
    seen = [context for row in rows for context in trained(row)]
    assert len(seen) == len(set(seen)) == targets_of(tree, paths)
    sampled = {}
    for index in range(len(tree.calls)):
        context, record = tuple(tree.context(index).tolist()), tree.calls[index]
        for at, logprob in enumerate(array(record.logprobs, "float32").tolist()):
            sampled[index, context[: record.prompt_tokens + at + 1]] = logprob
    part_of_call: dict[int, int] = {}
    longest = max(map(len, seen), default=0)
    for row in rows:
        calls = [index for index in of(row, "sequences") if index >= 0]
        columns = [calls, of(row, "logprobs", "float32"), of(row, "advantages", "float32")]
        for context, index, logprob, advantage in zip(trained(row), *columns, strict=True):
            assert sampled[index, context] == logprob and advantage == index + 1
            assert part_of_call.setdefault(index, row.part) == row.part
            assert len(context) > 1
        assert row.length <= max(tokens_max, longest), "over the budget only as far as the longest context is"
        parents, lengths = of(row, "run_parents"), of(row, "run_lengths")
        assert sum(lengths) == row.length and all(parents.count(run) != 1 for run in range(len(parents)))


@settings(max_examples=60, deadline=None)
@given(histories(), st.randoms())
def test_rows_do_not_depend_on_the_order_of_arrival(history, random):
    """B7."""
    shuffled = list(history[0])
    random.shuffle(shuffled)
    assert rows_of(shuffled, tokens_max=12) == rows_of(history[0], tokens_max=12)


def sample(*lengths: int) -> list[Row]:
    return [rows_of([call([1] * (length - 1), [2])])[0] for length in lengths]


def lengths(pieces: list[list[Row]]) -> list[list[int]]:
    return [[row.length for row in piece] for piece in pieces]


def test_samples_are_packed_whole_within_the_budget_and_a_larger_one_goes_alone():
    """B8: samples of 6, 4, 2+2, 3 and 6+6 tokens with budget 8, largest first: 6+6 | 6 | 4, 2+2 | 3."""
    pieces = pack_samples([sample(6), sample(4), sample(2, 2), sample(3), sample(6, 6)], 8, 1_000_000)
    assert lengths(pieces) == [[6, 6], [6], [4, 2, 2], [3]]
    assert pack_samples([], 10, 10) == []


def test_pieces_stay_inside_the_bus_payload():
    """E: a row of 100 tokens, one of them a target, is 800 + 16 + 8 + 512 = 1336 bytes; a limit of 2000 takes one a piece, one of 2672 both."""
    assert len(pack_samples([sample(100), sample(100)], 4096, 2000)) == 2
    assert len(pack_samples([sample(100), sample(100)], 4096, 2672)) == 1


def test_a_path_that_is_longer_than_the_budget_is_one_row():
    """B8: 30 calls of 10 tokens, each continuing the one before, and a budget of 20: the last call's context has 300 tokens, so a row must hold
    that much; 29 more rows of 10 … 290 tokens would compute 15 times what there is. A branch of 10 tokens after call 1 no longer fits: it is
    a row of its own, with the 20 before it again."""
    calls = [
        call(list(range(8)), [1, 2], index=index, parent=index - 1 if index else None, cut=10 * index)
        for index in range(30)
    ]
    (row,) = rows_of(calls, tokens_max=20)
    assert row.length == 300 and row.targets.sum() == 60
    branched = rows_of([*calls, call([99] * 8, [3, 4], index=30, parent=1, cut=20)], tokens_max=20)
    assert [row.length for row in branched] == [300, 30] and [int(row.targets.sum()) for row in branched] == [60, 2]

"""Trees on disk (B3): bit for bit, each common chunk once, and whole whatever a crash tears off."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gyre.errors import InvalidInput, NotFound
from services.trajproc.core.sampling import choose_paths
from services.trajproc.core.tree import build_tree
from services.trajproc.store import TreeReader, TreeStore
from tests.unit.trajproc.builders import call
from tests.unit.trajproc.generated import SAMPLE, executions

SYSTEM = list(range(1000, 2000))
FILES = ("trees.log", "tokens.i32", "logprobs.f32")


def tree_of(*, first: int, outputs: int = 40):
    """A system prompt of 1,000 tokens, a task of its own, and two calls."""
    task = list(range(first, first + 50))
    return build_tree([
        call([*SYSTEM, *task], list(range(outputs)), version=3), call([7, 8], [9], index=1, parent=0, cut=1050 + outputs, version=4),
    ])  # fmt: skip


def stored(folder, *trees):
    """The folder with the trees under names t0, t1 …"""
    store = TreeStore(folder)
    for number, tree in enumerate(trees):
        store.put(f"t{number}", tree, [path.leaf for path in choose_paths(tree, SAMPLE, 5)])
    store.close()
    return TreeReader(folder)


def same(tree, found):
    """Shape, tokens, log-probabilities, versions, calls: bit for bit."""
    for name in ("parents", "starts", "lengths", "owners", "lasts", "ends"):
        np.testing.assert_array_equal(getattr(tree, name), getattr(found, name))
    for node in range(len(tree.parents)):
        for name in ("tokens", "logprobs", "versions"):
            np.testing.assert_array_equal(getattr(tree, name)(node), getattr(found, name)(node))
    for number, record in enumerate(tree.calls):
        assert tree.context(number).tobytes() == found.context(number).tobytes()
        kept = found.calls[number]
        assert (kept.call_id, kept.role, kept.delivered) == (record.call_id, record.role, record.delivered)
        output = found.context(number)[kept.prompt_tokens :]
        assert output.tobytes() == record.output_ids, "what the policy sampled, and after it nothing"
    assert {name: tuple(problem) for name, problem in tree.set_aside.items()} == found.stored.set_aside


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(executions(), min_size=1, max_size=3))
def test_any_tree_comes_back_bit_for_bit(tmp_path_factory, many):
    """B3: trees of generated executions, several in one store."""
    trees = [build_tree(made.records) for made in many]
    reader = stored(tmp_path_factory.mktemp("trees"), *trees)
    for number, tree in enumerate(trees):
        found = reader.get(f"t{number}")
        same(tree, found)
        assert found.chosen == {node for path in choose_paths(tree, SAMPLE, 5) for node in path.fresh}


def test_a_common_system_prompt_is_stored_once(tmp_path):
    """B3: chunks of a prompt of 1,050 end at 256, 512, 768, 1024, 1050; the first three lie in the system prompt of 1,000. So the second tree appends
    1050 − 768 = 282 of its prompt, its 40 + 1 sampled and 2 prompt tokens; a third that is like the first appends what is not shared: the
    41 sampled tokens and chunks shorter than 32, which are 1024 … 1050 and the 2."""
    reader = stored(tmp_path, tree_of(first=3000), tree_of(first=4000), tree_of(first=3000))
    first, second, third = (reader.get(f"t{number}") for number in range(3))
    assert first.stored.tokens_end == 1050 + 40 + 2 + 1
    assert second.stored.tokens_end - second.stored.tokens_begin == 282 + 41 + 2
    assert third.stored.tokens_end - third.stored.tokens_begin == 26 + 41 + 2
    same(tree_of(first=4000), second)
    same(tree_of(first=3000), third)


def test_a_tree_costs_its_unique_tokens(tmp_path):
    """B3: 200 calls of 200 new tokens, 100 of them sampled: 4 bytes for each unique token, 4 for each sampled one's log-probability,
    and under a tenth more for shape, calls and versions."""
    rng = np.random.default_rng(0)
    records = [
        call(rng.integers(0, 9999, 100).tolist(), rng.integers(0, 9999, 100).tolist(), index=n, parent=n - 1 if n else None, cut=200 * n)
        for n in range(200)
    ]  # fmt: skip
    tree = build_tree(records)
    stored(tmp_path, tree)
    size = sum((tmp_path / name).stat().st_size for name in FILES)
    ideal = 4 * tree.tokens_unique + 4 * tree.tokens_sampled
    assert (tree.tokens_unique, tree.tokens_flat) == (40_000, 40_000) and ideal < size < 1.2 * ideal


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("torn", [1, 5, 60])
def test_a_torn_tail_is_found_and_cut_off_and_what_was_whole_stays(tmp_path, name, torn):
    """B3: a crash loses the last bytes of any of the three files: the newest tree is gone, the one before stays, the next is stored after it."""
    stored(tmp_path, tree_of(first=3000), tree_of(first=4000)).close()
    path = tmp_path / name
    path.write_bytes(path.read_bytes()[:-torn])
    store = TreeStore(tmp_path)
    assert TreeReader(tmp_path).samples() == ["t0"]
    store.put("t2", tree_of(first=5000), [])
    reader = TreeReader(tmp_path)
    same(tree_of(first=3000), reader.get("t0"))
    same(tree_of(first=5000), reader.get("t2"))
    with pytest.raises(NotFound):
        reader.get("t1")


def test_a_reader_passes_over_a_torn_frame_and_never_gives_wrong_tokens(tmp_path):
    """B3: the log's last byte is missing: t1 is not there yet. Tokens that are missing, or a damaged byte, are errors, not other tokens."""
    stored(tmp_path, tree_of(first=3000), tree_of(first=4000)).close()
    log, tokens = tmp_path / "trees.log", tmp_path / "tokens.i32"
    whole = log.read_bytes()
    log.write_bytes(whole[:-1])
    assert TreeReader(tmp_path).samples() == ["t0"]
    log.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(InvalidInput):
        TreeReader(tmp_path).get("t1")
    log.write_bytes(whole)
    tokens.write_bytes(tokens.read_bytes()[:-4])
    with pytest.raises(InvalidInput):
        TreeReader(tmp_path).get("t1")


def test_a_full_disk_leaves_the_store_as_it_was(tmp_path):
    """B3: the write of the frame fails after tokens were written: the error is the caller's to count; the next tree is stored, whole."""
    store = TreeStore(tmp_path)
    store.put("t0", tree_of(first=3000), [])

    class Full:
        def write(self, _):
            raise OSError(28, "No space left on device")

        def close(self):
            pass

    store._log = Full()
    with pytest.raises(OSError, match="No space"):
        store.put("t1", tree_of(first=4000), [])
    assert (tmp_path / "tokens.i32").stat().st_size > 4 * 1093
    store.put("t2", tree_of(first=4000), [])
    reader = TreeReader(tmp_path)
    assert reader.samples() == ["t0", "t2"]
    same(tree_of(first=4000), reader.get("t2"))


def test_a_sample_that_comes_again_has_its_newer_tree_and_a_restart_still_shares(tmp_path):
    """B3: a restart says a sample again: 26 + 41 + 2 tokens more (see above), since the reopened store knows the chunks; the newer one is read."""
    stored(tmp_path, tree_of(first=3000)).close()
    reader = stored(tmp_path, tree_of(first=3000))
    found = reader.get("t0")
    assert reader.samples() == ["t0"] and found.stored.tokens_begin == 1093
    assert found.stored.tokens_end - found.stored.tokens_begin == 26 + 41 + 2


def test_where_no_tree_was_kept_the_reader_says_so(tmp_path):
    with pytest.raises(NotFound, match="keep_trees"):
        TreeReader(tmp_path)

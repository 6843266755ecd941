"""Recorded executions as an offline data set, token by token (D12)."""

import argparse
import json

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gyre.records import pack
from gyre.run_folder import RunFolder
from services.trajproc.core.sampling import choose_paths, trained_calls
from services.trajproc.core.tree import build_tree
from services.trajproc.demonstrations import options, rows, write
from services.trajproc.store import TreeStore
from tests.unit.trajproc.builders import call
from tests.unit.trajproc.generated import SAMPLE, executions
from tests.unit.trajproc.test_trajproc_store import stored


def two_branches():
    """Prompt 1 2 3, output 4 5; then two calls that go on from there: 6 → 7, and 8 → 9."""
    return build_tree([
        call([1, 2, 3], [4, 5]), call([6], [7], index=1, parent=0, cut=5), call([8], [9], index=2, parent=0, cut=5),
    ])  # fmt: skip


def test_a_path_is_what_was_sampled_and_what_was_served_and_a_shared_token_is_a_target_once(tmp_path):
    """B1, B6: 4 and 5 are on both paths and are trained on the first."""
    found = list(rows(stored(tmp_path, two_branches()).get("t0")))
    assert [row["ids"] for row in found] in (
        [[1, 2, 3, 4, 5, 6, 7], [1, 2, 3, 4, 5, 8, 9]],
        [[1, 2, 3, 4, 5, 8, 9], [1, 2, 3, 4, 5, 6, 7]],
    )
    assert [row["targets"] for row in found] == [[0, 0, 0, 1, 1, 0, 1], [0, 0, 0, 0, 0, 0, 1]]


def test_what_side_calls_sampled_and_what_was_set_aside_is_context_and_no_target(tmp_path):
    """B5, D12: 4 5 are the main agent's; 7 is of a side call that the next one continues; 9 has a log-probability that is none; 11 is learned."""
    broken = call([8], [9], index=2, parent=1, cut=7)
    broken = msgspec.structs.replace(broken, logprobs=pack([float("nan")], "float32"))
    tree = build_tree([
        call([1, 2, 3], [4, 5]), call([6], [7], index=1, parent=0, cut=5, role="side"), broken,
        call([10], [11], index=3, parent=2, cut=9),
    ])  # fmt: skip
    (found,) = rows(stored(tmp_path, tree).get("t0"))
    assert found["ids"] == [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]
    assert found["targets"] == [0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 1]


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(executions(), min_size=1, max_size=2))
def test_targets_are_the_chosen_sampled_tokens_of_any_tree_each_once(tmp_path_factory, many):
    """B5, B6: as many as the trainer would have trained of these paths."""
    trees = [build_tree(made.records) for made in many]
    reader = stored(tmp_path_factory.mktemp("trees"), *trees)
    for number, tree in enumerate(trees):
        chosen = {node for path in choose_paths(tree, SAMPLE, 5) for node in tree.path(path.leaf)}
        wanted = sum(int(tree.lengths[node]) for node in chosen if trained_calls(tree)[tree.owners[node]])
        assert sum(sum(row["targets"]) for row in rows(reader.get(f"t{number}"))) == wanted


def test_a_file_holds_the_named_samples_and_what_has_no_tree_is_counted(tmp_path):
    """The tokens come back from the file as they were recorded."""
    folder = RunFolder(tmp_path)
    folder.make()
    store = TreeStore(folder.trees)
    for name in ("g0-e0-a1", "g0-e1-a1"):
        tree = two_branches()
        store.put(name, tree, [path.leaf for path in choose_paths(tree, SAMPLE, 5)])
    store.close()
    (tmp_path / "names").write_text("g0-e1-a1\ng0-e7-a1\n")
    told = json.loads(write(folder, tmp_path / "names", tmp_path / "d.jsonl"))
    assert told == {
        "path": str(tmp_path / "d.jsonl"),
        "samples": 1,
        "paths": 2,
        "tokens": 14,
        "targets": 4,
        "without_tree": 1,
    }
    lines = [json.loads(line) for line in (tmp_path / "d.jsonl").read_text().splitlines()]
    assert {line["sample_id"] for line in lines} == {"g0-e1-a1"}
    assert sorted(line["ids"] for line in lines) == [[1, 2, 3, 4, 5, 6, 7], [1, 2, 3, 4, 5, 8, 9]]
    assert not list(tmp_path.glob(".*.part"))


def test_two_files_are_asked_for():
    parser = argparse.ArgumentParser(exit_on_error=False)
    options(parser)
    assert parser.parse_args(["--demonstrations", "a", "b"]).demonstrations
    with pytest.raises((argparse.ArgumentError, SystemExit)):
        parser.parse_args(["--demonstrations", "a"])

"""The repair job with compacted contexts (examples/repair/branching.toml): what the model saw, call by call, is a tree (B1, B3, B5)."""

import numpy as np
import pytest

from examples.repair.environment import SEEN, RepairEnvironment
from gyre.env import Task
from services.trajproc.core.sampling import choose_paths
from services.trajproc.core.tree import build_tree

from .builders import Harness, reply_message, tool_message, tool_text


@pytest.fixture
def harness(model) -> Harness:
    """Five calls, of whose results the newest two are shown in full."""
    environment = RepairEnvironment(Task(task_id="t", task_type="t", seed=1), sandbox=object(), results_kept=2)
    harness, messages = Harness(model), [{"role": "user", "content": "go"}]
    for number in range(5):
        messages = environment.compact(messages)
        reply = harness.call(messages, tool_text("read_file", f'{{"path": "{number}.py"}}'))
        messages += [reply_message(reply), tool_message(reply, 0, f"result {number} of the tests")]
    return harness


def test_each_compaction_begins_a_path_where_the_histories_part(harness):
    """B3: calls 0, 1, 2 are one path: no result was left out. Before call 3 result 0 becomes a note, so it hangs from the end of call 0; before
    call 4 result 1 does, so it hangs from call 1 as call 3's context holds it. Three leaves: calls 2, 3 and 4."""
    tree = build_tree(harness.records)
    assert [tree.context(index)[: len(prompt.ids)].tolist() for index, prompt in enumerate(harness.prompts)] == [
        prompt.ids.tolist() for prompt in harness.prompts
    ]
    paths = choose_paths(tree, "g000001-e0-a1", 1000)
    assert sorted(path.leaf for path in paths) == sorted({tree.ends[2], tree.ends[3], tree.ends[4]})
    assert len(choose_paths(tree, "g000001-e0-a1", 1)) == 1
    assert tree.tokens_unique < tree.tokens_flat


def test_the_model_sees_the_note_and_not_the_result(harness):
    """B1: of results 0…3 the last prompt holds 2 and 3, and two notes."""
    text = harness.model.template.decode(harness.prompts[4].ids.tolist())
    assert text.count(SEEN) == 2
    assert [f"result {number} of" in text for number in range(4)] == [False, False, True, True]


def test_what_was_sampled_is_trained_once_wherever_it_is_seen_again(harness):
    """B6: five calls' outputs are targets; that later contexts hold calls 1 and 2 again, behind a note, makes no target of them there."""
    tree = build_tree(harness.records)
    sampled = sum(len(record.output_ids) // 4 for record in harness.records)
    fresh = np.concatenate([path.fresh for path in choose_paths(tree, "g000001-e0-a1", 1000)])
    assert len(set(fresh.tolist())) == len(fresh)
    assert sum(int(tree.lengths[node]) for node in fresh if tree.owners[node] >= 0) == sampled

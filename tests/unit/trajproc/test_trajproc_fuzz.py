"""Fuzzing of records (B1, B3, B5, B6): what is trained, held against a slow and obvious computation."""

import math

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gyre.records import array
from services.trajproc.core.roles import TRAINED_ROLES
from services.trajproc.core.rows import make_rows
from services.trajproc.core.sampling import choose_paths, target_calls, trained_calls
from services.trajproc.core.tree import NOT_SAMPLED, ROOT, Known, TreeBuilder
from tests.unit.trajproc.generated import PUBLISHED, SAMPLE, arrivals, executions
from tests.unit.trajproc.test_trajproc_rows import of, trained
from tests.unit.trajproc.test_trajproc_tree import same_tree


def built(records, look_after: int = -1):
    """The tree; `look_after`: after how many records it is looked at once before."""
    builder = TreeBuilder(Known(versions=PUBLISHED))
    for number, record in enumerate(records):
        builder.add(record)
        if number == look_after:
            builder.tree()
    return builder.tree()


def comparable(logprob: float) -> float | None:
    """None for what is no number, which equals nothing."""
    return None if math.isnan(logprob) else logprob


def by_prefix(tree):
    """Prefix → (owner's index, log-probability, version) of its last token, from the tree's arrays."""
    found = {}
    for node in range(1, len(tree.parents)):
        context, start = tuple(tree.flatten(node).tolist()), int(tree.starts[node])
        values = zip(tree.logprobs(node).tolist(), tree.versions(node).tolist(), strict=True)
        for offset, (logprob, version) in enumerate(values):
            prefix = context[: start + offset + 1]
            assert prefix not in found, "a prefix is stored once"
            found[prefix] = (int(tree.owners[node]), comparable(logprob), version)
    return found


def expected_by_prefix(made, calls, class_order=TRAINED_ROLES):
    index = {record.call_id: number for number, record in enumerate(calls)}
    found = {}
    for prefix, owner in made.owners(class_order).items():
        if owner is None:
            found[prefix] = (NOT_SAMPLED, 0.0, -1)
            continue
        at = len(prefix) - 1 - owner.prompt_tokens
        logprob, version = array(owner.logprobs, "float32")[at], array(owner.versions, "int32")[at]
        found[prefix] = (index[owner.call_id], comparable(float(logprob)), int(version))
    return found


def check_tree(made, tree):
    """Calls whose tokens can be trusted and no others, contexts bit for bit, every token once, with the numbers of who should own it."""
    assert {call.call_id for call in tree.calls} == set(made.contexts)
    assert {name: problem.reason for name, problem in tree.set_aside.items()} == made.set_aside
    for number, call in enumerate(tree.calls):
        assert tuple(tree.context(number).tolist()) == made.contexts[call.call_id]
    assert by_prefix(tree) == expected_by_prefix(made, tree.calls)


def check_paths(made, tree, paths_max, class_order):
    """Targets: each once, sampled by a sound call of a trained role, held by a context whose reply was delivered; with enough paths all of them."""
    paths = choose_paths(tree, SAMPLE, paths_max, class_order)
    assert not paths_max or len(paths) <= paths_max
    fresh = [node for path in paths for node in path.fresh]
    assert len(fresh) == len(set(fresh)) and all(set(tree.path(path.leaf)) <= set(fresh) for path in paths)
    targets = set()
    for node in fresh:
        owner = tree.calls[tree.owners[node]] if tree.owners[node] != NOT_SAMPLED else None
        if owner is not None and made.is_trained(owner, class_order):
            start, context = int(tree.starts[node]), tuple(tree.flatten(node).tolist())
            targets |= {context[: end + 1] for end in range(start, len(context))}
    owners = made.owners(class_order)
    delivered = [
        made.contexts[call.call_id] for call in made.placed if call.delivered and made.is_trained(call, class_order)
    ]
    held = {context[:end] for context in delivered for end in range(1, len(context) + 1)}
    allowed = {
        prefix for prefix, owner in owners.items() if owner is not None and made.is_trained(owner, class_order)
    } & held
    assert targets <= allowed
    assert bool(len(target_calls(tree, class_order))) == bool(allowed) == bool(paths)
    if not paths_max:
        assert targets == allowed
        assert {index for index in tree.owners[fresh].tolist() if trained_calls(tree, class_order)[index]} == set(
            target_calls(tree, class_order).tolist()
        )
    check_rows(made, tree, paths, targets, class_order)


def check_rows(made, tree, paths, targets, class_order):
    """The rows' targets are the paths', each in one row, with its owner's own log-probability, version and credit."""
    rows = make_rows(tree, paths, SAMPLE, np.arange(1.0, len(tree.calls) + 1), 12, "", class_order)
    found = [context for row in rows for context in trained(row)]
    assert len(found) == len(set(found)) and set(found) == targets
    expected = expected_by_prefix(made, tree.calls, class_order)
    for row in rows:
        columns = [of(row, "logprobs", "float32"), of(row, "versions"), of(row, "advantages", "float32")]
        for context, logprob, version, advantage in zip(trained(row), *columns, strict=True):
            assert (advantage - 1, logprob, version) == expected[context]


def check(made, data):
    one, other = data.draw(arrivals(made)), data.draw(arrivals(made))
    tree = built(one, look_after=data.draw(st.integers(-1, len(one))))
    check_tree(made, tree)
    again = built(other)
    same_tree(tree, again)
    paths_max = data.draw(st.integers(0, 4))
    assert choose_paths(tree, SAMPLE, paths_max) == choose_paths(again, SAMPLE, paths_max)
    check_paths(made, tree, paths_max, TRAINED_ROLES)
    order = tuple(data.draw(st.permutations(TRAINED_ROLES))[: data.draw(st.integers(1, 4))])
    builder = TreeBuilder(Known(versions=PUBLISHED))
    for record in one:
        builder.add(record)
    check_paths(made, builder.tree(order), paths_max, order)
    assert ROOT not in {node for path in choose_paths(tree, SAMPLE, 0) for node in path.fresh}


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(executions(), st.data())
def test_whatever_arrives_in_whatever_order_only_what_was_sampled_is_trained_and_once(made, data):
    """B1, B3, B5, B6: the oracle in generated.py walks prefixes token by token; nothing in it is shared with the code under test."""
    check(made, data)

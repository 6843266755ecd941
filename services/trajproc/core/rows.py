"""The chosen subtree of one sample → packed training rows (B6, B7, B8).

    chosen paths ──union──▶ nodes with a target at or below them, depth-first ──chains merged──▶ runs of one row

A subtree over the budget is cut by calls: in depth-first order, each row takes calls for as long as the union of their contexts fits. A call's
targets are never divided, and all their ancestors are in the row, so gradients through the cut are exact; only the prefix is computed again. One
row has to hold the longest context in any case, so where that is over the budget it is the budget: otherwise each call of a long path would
be a row of its own, with everything before it.

N nodes, C calls of the tree; T tokens of a row, K targets.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from gyre.records import Row, pack
from services.trajproc.core.roles import TRAINED_ROLES
from services.trajproc.core.sampling import Path, trained_calls
from services.trajproc.core.tree import NOT_SAMPLED, ROOT, Tree


def targets_of(tree: Tree, paths: Sequence[Path], class_order: Sequence[str] = TRAINED_ROLES) -> int:
    """|U_e|: target tokens of the chosen paths, each once."""
    return int(tree.lengths[_target_nodes(tree, paths, class_order)].sum())


def sequences_of(tree: Tree, paths: Sequence[Path], class_order: Sequence[str] = TRAINED_ROLES) -> int:
    """Calls with a target on the chosen paths."""
    nodes = _target_nodes(tree, paths, class_order)
    return len(np.unique(tree.owners[nodes[tree.lengths[nodes] > 0]]))


def make_rows(
    tree: Tree, paths: Sequence[Path], sample_id: str, advantages_C: npt.NDArray, tokens_max: int, traceparent: str = "",
    class_order: Sequence[str] = TRAINED_ROLES,
) -> list[Row]:  # fmt: skip
    """`advantages_C`: float64, the advantage of each of tree.calls. Rows hold at most `tokens_max` tokens, or as many as the longest context."""
    targets = _target_nodes(tree, paths, class_order)
    rows = []
    for part, (nodes, calls) in enumerate(_parts(tree, targets, tokens_max)):
        mine = targets[np.isin(tree.owners[targets], calls)]
        rows.append(_row(tree, nodes, mine, advantages_C, sample_id, part, traceparent))
    return rows


def _target_nodes(tree: Tree, paths: Sequence[Path], class_order: Sequence[str]) -> npt.NDArray:
    """int64, chosen nodes whose tokens are targets, in depth-first order."""
    fresh = np.array(sorted(node for path in paths for node in path.fresh), np.int64)
    return fresh[trained_calls(tree, class_order)[tree.owners[fresh]]]


def _parts(tree: Tree, targets: npt.NDArray, tokens_max: int) -> Iterator[tuple[npt.NDArray, list[int]]]:
    """Nodes in depth-first order, and calls, of each row."""
    tokens_max = max(tokens_max, int((tree.starts + tree.lengths)[targets].max(initial=0)))
    # all targets of a call lie on one path: with the lowest of their nodes a row has them all
    lowest_C = np.full(len(tree.calls), ROOT)
    np.maximum.at(lowest_C, tree.owners[targets], targets)
    calls: list[int] = []
    nodes: set[int] = set()
    tokens = 0
    for call in np.argsort(lowest_C, kind="stable")[np.count_nonzero(lowest_C == ROOT) :].tolist():
        above = _above(tree, int(lowest_C[call]), nodes)
        if calls and tokens + int(tree.lengths[above].sum()) > tokens_max:
            yield np.array(sorted(nodes)), calls
            nodes, calls, tokens = set(), [], 0
            above = _above(tree, int(lowest_C[call]), nodes)
        nodes.update(above)
        calls.append(call)
        tokens += int(tree.lengths[above].sum())
    if calls:
        yield np.array(sorted(nodes)), calls


def _above(tree: Tree, node: int, known: set[int]) -> list[int]:
    """`node` and its ancestors, as far as they are not known."""
    found = []
    while node != ROOT and node not in known:
        found.append(node)
        node = int(tree.parents[node])
    return found


def _row(
    tree: Tree, nodes: npt.NDArray, targets: npt.NDArray, advantages_C: npt.NDArray, sample_id: str, part: int, traceparent: str
) -> Row:  # fmt: skip
    owners, lengths = tree.owners[targets], tree.lengths[targets]
    temperatures_C = np.array([call.sampling.temperature for call in tree.calls])
    run_lengths, run_parents = _runs(tree, nodes)
    sequences = np.where(np.isin(nodes, targets), tree.owners[nodes], NOT_SAMPLED).astype(np.int32)
    return Row(
        sample_id=sample_id,
        part=part,
        tokens=b"".join(tree.tokens(node).data for node in nodes),
        run_lengths=pack(run_lengths, "int32"),
        run_parents=pack(run_parents, "int32"),
        sequences=pack(np.repeat(sequences, tree.lengths[nodes]), "int32"),
        logprobs=b"".join(tree.logprobs(node).data for node in targets),
        versions=b"".join(tree.versions(node).data for node in targets),
        advantages=pack(np.repeat(advantages_C[owners].astype(np.float32), lengths), "float32"),
        temperatures=pack(np.repeat(temperatures_C[owners].astype(np.float32), lengths), "float32"),
        traceparent=traceparent,
    )


def _runs(tree: Tree, nodes: npt.NDArray) -> tuple[npt.NDArray, npt.NDArray]:
    """Lengths and parents of the runs: nodes of which each is the only one that continues the one before make one run."""
    place_N = np.full(len(tree.parents), -1)
    place_N[nodes] = np.arange(len(nodes))
    above = place_N[tree.parents[nodes]]
    children = np.bincount(above[above >= 0], minlength=len(nodes))
    begins = (above < 0) | (children[above] > 1)
    run_of = np.cumsum(begins) - 1
    return np.add.reduceat(tree.lengths[nodes], np.flatnonzero(begins)), np.where(above < 0, -1, run_of[above])[begins]


def version_range(tree: Tree) -> tuple[int, float, int]:
    """Oldest, token-weighted mean and newest version of tokens that sound calls sampled (slime#2092); zeros where there are none."""
    is_known = np.array([call.call_id not in tree.set_aside for call in tree.calls] + [False], bool)
    sampled = [tree.versions(int(node)) for node in np.flatnonzero(is_known[tree.owners])]
    if not sampled:
        return 0, 0.0, 0
    versions = np.concatenate(sampled)
    return int(versions.min()), float(versions.mean()), int(versions.max())


def tokens_sampled(tree: Tree) -> int:
    """Policy-sampled tokens of the whole tree, of every role."""
    return tree.tokens_sampled

"""Bounded, role-ordered sampling of candidate paths (B5, B6).

    unused ← all policy-sampled tokens
    repeat up to J_max times while unused is not empty:
        class ← highest class that has a leaf whose path holds unused tokens
        leaf  ← drawn from that class with probability ∝ unused tokens on its path
        targets(leaf) ← unused tokens on its path; unused ← unused − targets(leaf)

A leaf is the end of a call of a trained role, not set aside, below which no other such call ends. A reply that never reached the harness had no
part in the outcome, so its end is no leaf; what continues from it all the same shows that it did reach.

    N  nodes    L  leaves, in depth-first order: those below a node are one range
Costs N + J·L array items and the N nodes that become used, each once.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gyre.ids import seed_for
from gyre.records import CallRecorded
from services.trajproc.core.roles import TRAINED_ROLES, UNTRAINED, class_of
from services.trajproc.core.tree import ROOT, Shape, Tree


@dataclass(frozen=True, slots=True)
class Path:
    """A chosen path: its leaf, and the nodes that no path chosen earlier holds, top down. The fresh nodes of all paths are the chosen subtree."""

    leaf: int
    fresh: list[int]


def trained_calls(tree: Tree, class_order: Sequence[str] = TRAINED_ROLES) -> npt.NDArray:
    """bool[C + 1]: whether tokens of the call may be targets; the last entry answers for NOT_SAMPLED."""
    return np.array([_is_trained(tree, call, class_order) for call in tree.calls] + [False], bool)


def _is_trained(tree: Tree, call: CallRecorded, class_order: Sequence[str]) -> bool:
    return call.role in class_order and call.call_id not in tree.set_aside


def leaves(tree: Tree, class_order: Sequence[str] = TRAINED_ROLES) -> tuple[npt.NDArray, npt.NDArray]:
    """Leaf nodes int64[L], rising, and the highest class of the calls that end at each, int64[L]."""
    kinds_N = np.full(len(tree.parents), UNTRAINED)
    kinds_C = [
        class_of(call.role, class_order) if call.delivered and _is_trained(tree, call, class_order) else UNTRAINED
        for call in tree.calls
    ]
    np.minimum.at(kinds_N, tree.ends, np.array(kinds_C, np.int64))
    is_end_N = kinds_N < UNTRAINED
    before_N = np.concatenate([[0], np.cumsum(is_end_N)])
    ends_below_N = before_N[tree.lasts] - before_N[1:]
    leaves_L = np.flatnonzero(is_end_N & (ends_below_N == 0))
    return leaves_L, kinds_N[leaves_L]


def target_calls(tree: Tree, class_order: Sequence[str] = TRAINED_ROLES) -> npt.NDArray:
    """int64, indices in tree.calls, rising, of the calls that sampling may take tokens of: with paths enough it takes them all."""
    leaves_L, _ = leaves(tree, class_order)
    nodes = np.arange(len(tree.parents))
    has_leaf_N = np.searchsorted(leaves_L, tree.lasts) > np.searchsorted(leaves_L, nodes)
    return np.unique(tree.owners[has_leaf_N & (_unused(tree, class_order) > 0)])


def choose_paths(
    tree: Tree, sample_id: str, paths_max: int, class_order: Sequence[str] = TRAINED_ROLES
) -> list[Path]:  # fmt: skip
    """At most `paths_max` paths of a sample (0: as many as there are), the same for the same sample whenever it is asked."""
    leaves_L, kinds_L = leaves(tree, class_order)
    unused_N = _unused(tree, class_order)
    along_L = _along(tree, unused_N)[leaves_L]
    below_N = np.searchsorted(leaves_L, np.arange(len(tree.parents) + 1))  # leaves before a node
    is_used_N = np.zeros(len(tree.parents), bool)
    is_used_N[ROOT] = True
    draw = np.random.Generator(np.random.Philox(seed_for("paths", sample_id)))
    chosen: list[Path] = []
    while (not paths_max or len(chosen) < paths_max) and along_L.any():
        highest = kinds_L[along_L > 0].min()
        bounds = np.cumsum(np.where(kinds_L == highest, along_L, 0))
        leaf = int(leaves_L[np.searchsorted(bounds, draw.integers(bounds[-1]), side="right")])
        fresh = _fresh(tree, leaf, is_used_N)
        for node in fresh:
            is_used_N[node] = True
            along_L[below_N[node] : below_N[tree.lasts[node]]] -= unused_N[node]
        chosen.append(Path(leaf, fresh))
    return chosen


def _unused(tree: Tree, class_order: Sequence[str]) -> npt.NDArray:
    """int64[N]: tokens of each node that may be targets."""
    return np.where(trained_calls(tree, class_order)[tree.owners], tree.lengths, 0).astype(np.int64)


def _along(shape: Shape, tokens_N: npt.NDArray) -> npt.NDArray:
    """int64[N]: the sum of `tokens_N` from the root to each node: added where a subtree begins, taken off where it ends."""
    size = len(tokens_N) + 1
    ended = np.bincount(shape.lasts, tokens_N, size).astype(np.int64)
    return np.cumsum(np.append(tokens_N, 0) - ended)[:-1]


def _fresh(shape: Shape, node: int, is_used_N: npt.NDArray) -> list[int]:
    """`node` and its ancestors down from the first that is not used."""
    found = []
    while not is_used_N[node]:
        found.append(node)
        node = int(shape.parents[node])
    return found[::-1]

"""Bounded, role-ordered sampling of candidate paths (B5, B6).

    unused ← all policy-sampled tokens
    repeat up to J_max times while unused is not empty:
        class ← highest class that has a leaf whose path holds unused tokens
        leaf  ← drawn from that class with probability ∝ unused tokens on its path
        targets(leaf) ← unused tokens on its path; unused ← unused − targets(leaf)

A leaf is the end of a call of a trained role below which no other such call ends. A reply that never reached the harness had no
part in the outcome, so its end is no leaf; what continues from it all the same shows that it did reach.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gyre.ids import seed_for
from services.trajproc.core.roles import UNTRAINED, class_of
from services.trajproc.core.tree import ROOT, Tree


@dataclass(frozen=True, slots=True)
class Path:
    """A chosen path: the nodes from the root to its leaf, and those whose targets it trains."""

    leaf: int
    nodes: list[int]
    fresh: list[int]
    """Nodes that no path chosen earlier holds."""


def trained_calls(tree: Tree) -> npt.NDArray:
    """bool[calls + 1]: whether tokens of the call may be targets; the last entry answers for NOT_SAMPLED."""
    return np.array([class_of(call.role) < UNTRAINED for call in tree.calls] + [False], bool)


def leaves(tree: Tree) -> dict[int, int]:
    """Leaf node → its class, the highest of the calls that end there."""
    ends: dict[int, int] = {}
    for call, node in zip(tree.calls, tree.ends, strict=True):
        kind = class_of(call.role)
        if kind < UNTRAINED and call.delivered and node != ROOT:
            ends[node] = min(kind, ends.get(node, UNTRAINED))
    covered: set[int] = set()
    for node in ends:
        above = tree.nodes[node].parent
        while above != ROOT and above not in covered:
            covered.add(above)
            above = tree.nodes[above].parent
    return {node: kind for node, kind in ends.items() if node not in covered}


def choose_paths(tree: Tree, sample_id: str, paths_max: int) -> list[Path]:
    """At most `paths_max` paths of a sample, the same for the same sample whenever it is asked."""
    kinds = leaves(tree)
    trained = trained_calls(tree)
    unused = [int(np.count_nonzero(trained[node.owner])) for node in tree.nodes]
    order = tree.top_down()
    draw = np.random.Generator(np.random.Philox(seed_for("paths", sample_id)))
    used: set[int] = set()
    chosen: list[Path] = []
    while len(chosen) < paths_max:
        along = [0] * len(tree.nodes)
        for node in order:
            along[node] = along[tree.nodes[node].parent] + unused[node]
        open_leaves = [node for node in kinds if along[node] > 0]
        if not open_leaves:
            break
        highest = min(kinds[node] for node in open_leaves)
        candidates = sorted(
            (node for node in open_leaves if kinds[node] == highest), key=lambda node: _first_call(tree, node)
        )
        bounds = np.cumsum([along[node] for node in candidates])
        leaf = candidates[int(np.searchsorted(bounds, draw.integers(bounds[-1]), side="right"))]
        nodes = tree.path(leaf)
        fresh = [node for node in nodes if node not in used]
        used.update(fresh)
        for node in fresh:
            unused[node] = 0
        chosen.append(Path(leaf, nodes, fresh))
    return chosen


def _first_call(tree: Tree, node: int) -> int:
    """Index of the first call that ends at `node`."""
    return tree.ends.index(node)

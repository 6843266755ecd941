"""Chosen paths of one sample → training rows (B6, B7)."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from gyre.records import Row, pack
from services.trajproc.core.sampling import Path, trained_calls
from services.trajproc.core.tree import NOT_SAMPLED, Tree


def targets_of(tree: Tree, paths: Sequence[Path]) -> int:
    """|U_e|: target tokens of the chosen paths, each once."""
    trained = trained_calls(tree)
    return sum(int(np.count_nonzero(trained[tree.nodes[node].owner])) for path in paths for node in path.fresh)


def make_rows(tree: Tree, paths: Sequence[Path], sample_id: str, advantage: float, traceparent: str = "") -> list[Row]:
    """One row a path; calls of a path that were drawn at different temperatures give one row each.

    Every target stands in exactly one row with weight 1/|U_e|, so the sample's weights sum to 1 however it is split.
    """
    total = targets_of(tree, paths)
    trained = trained_calls(tree)
    temperatures = np.array([call.sampling.temperature for call in tree.calls] + [0.0], np.float64)
    rows = []
    for number, path in enumerate(paths):
        owner = _along(tree, path, "owner")
        new = set(path.fresh)
        fresh = np.concatenate([np.full(len(tree.nodes[node].tokens), node in new) for node in path.nodes])
        targets = fresh & trained[owner]
        for temperature in np.unique(temperatures[owner[targets]]):
            mine = targets & (temperatures[owner] == temperature)
            rows.append(_row(tree, path, number, mine, total, sample_id, advantage, float(temperature), traceparent))
    return rows


def _row(
    tree: Tree,
    path: Path,
    number: int,
    targets: npt.NDArray,
    total: int,
    sample_id: str,
    advantage: float,
    temperature: float,
    traceparent: str,
) -> Row:
    return Row(
        sample_id=sample_id,
        path=number,
        tokens=pack(_along(tree, path, "tokens"), "int32"),
        targets=pack(targets, "uint8"),
        logprobs=pack(_along(tree, path, "logprobs"), "float32"),
        versions=pack(_along(tree, path, "versions"), "int32"),
        advantages=pack(np.where(targets, advantage, 0.0), "float32"),
        weights=pack(np.where(targets, 1.0 / total, 0.0), "float32"),
        traceparent=traceparent,
        temperature=temperature,
    )


def _along(tree: Tree, path: Path, name: str) -> npt.NDArray:
    """One of a node's arrays, along the whole path."""
    return np.concatenate([getattr(tree.nodes[node], name) for node in path.nodes])


def version_range(tree: Tree) -> tuple[int, float, int]:
    """Oldest, token-weighted mean and newest version of the sampled tokens (slime#2092); zeros where there are none."""
    sampled = [node.versions[node.owner != NOT_SAMPLED] for node in tree.nodes]
    versions = np.concatenate(sampled)
    if not len(versions):
        return 0, 0.0, 0
    return int(versions.min()), float(versions.mean()), int(versions.max())


def tokens_sampled(tree: Tree) -> int:
    """Policy-sampled tokens of the whole tree, of every role."""
    return sum(int(np.count_nonzero(node.owner != NOT_SAMPLED)) for node in tree.nodes)

"""Packed rows of any number of samples, side by side, as one row of tokens for one forward.

Token j stands in the context of token i exactly if j ≤ i < ends[j]: tokens are in depth-first order, and `ends[j]` is where the subtree of j's run
ends. So two integers a token say who attends to whom, whatever the trees look like.

Shape legend: T tokens, R runs, N target tokens.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from gyre.errors import InvalidInput
from gyre.records import Row, array

ROOT = -1


@dataclass(frozen=True)
class Forest:
    """Trees in depth-first order, one after the other."""

    tokens_T: npt.NDArray
    """int64"""
    starts_R: npt.NDArray
    """int64, index of each run's first token."""
    lengths_R: npt.NDArray
    """int64"""
    parents_R: npt.NDArray
    """int64, the run whose end it continues; ROOT where it begins a tree."""
    depths_R: npt.NDArray
    """int64, position of each run's first token."""
    ends_R: npt.NDArray
    """int64, index after the last token of each run's subtree."""
    targets_N: npt.NDArray
    """int64, indices of the tokens whose log-probability is asked for, ascending."""
    temperatures_N: npt.NDArray
    """float32, at which."""

    @property
    def tokens(self) -> int:
        """T."""
        return len(self.tokens_T)

    @cached_property
    def positions_T(self) -> npt.NDArray:
        """int64, depth of each token from its root."""
        return np.arange(self.tokens) + np.repeat(self.depths_R - self.starts_R, self.lengths_R)

    @cached_property
    def ends_T(self) -> npt.NDArray:
        """int64, the token is seen from itself up to before this index."""
        return np.repeat(self.ends_R, self.lengths_R)

    @property
    def before_N(self) -> npt.NDArray:
        """int64, index of the token that predicts each target."""
        runs_N = np.searchsorted(self.starts_R, self.targets_N, side="right") - 1
        parents_N = self.parents_R[runs_N]
        above_N = np.where(parents_N == ROOT, ROOT, self.starts_R[parents_N] + self.lengths_R[parents_N] - 1)
        return np.where(self.targets_N == self.starts_R[runs_N], above_N, self.targets_N - 1)

    def path(self, run: int) -> list[int]:
        """Runs from the root to `run`."""
        found = []
        while run != ROOT:
            found.append(run)
            run = int(self.parents_R[run])
        return found[::-1]


def make_forest(
    tokens_T: npt.NDArray, lengths_R: npt.NDArray, parents_R: npt.NDArray, targets_N: npt.NDArray, temperatures_N: npt.NDArray
) -> Forest:  # fmt: skip
    """Raises InvalidInput unless the runs are whole, not empty, and in depth-first order."""
    lengths_R, parents_R = lengths_R.astype(np.int64), parents_R.astype(np.int64)
    runs = np.arange(len(lengths_R))
    if lengths_R.sum() != len(tokens_T) or (lengths_R <= 0).any():
        raise InvalidInput(f"{len(tokens_T)} tokens in runs of {lengths_R.sum()}, the shortest of {lengths_R.min()}")
    if (parents_R >= runs).any() or (parents_R < ROOT).any():
        raise InvalidInput("a run stands before the one it continues")
    starts_R = np.cumsum(lengths_R) - lengths_R
    depths, ends = [0] * len(runs), (starts_R + lengths_R).tolist()
    sizes, lengths, parents = lengths_R.tolist(), lengths_R.tolist(), parents_R.tolist()
    for run, parent in enumerate(parents):
        if parent != ROOT:
            depths[run] = depths[parent] + lengths[parent]
    for run, parent in reversed(list(enumerate(parents))):
        if parent != ROOT:
            ends[parent] = max(ends[parent], ends[run])
            sizes[parent] += sizes[run]
    if (starts_R + np.array(sizes, np.int64) != ends).any():
        raise InvalidInput("runs are not in depth-first order")
    return Forest(
        tokens_T.astype(np.int64), starts_R, lengths_R, parents_R, np.array(depths, np.int64), np.array(ends, np.int64),
        targets_N, temperatures_N,
    )  # fmt: skip


def forest_of(rows: Sequence[Row]) -> Forest:
    """Rows side by side. Raises InvalidInput."""
    parents, runs = [], 0
    for row in rows:
        own = array(row.run_parents, "int32")
        parents.append(np.where(own == ROOT, ROOT, own + runs))
        runs += len(own)
    targets_N = np.flatnonzero(joined(rows, "sequences", "int32") >= 0)
    return make_forest(
        joined(rows, "tokens", "int32"), joined(rows, "run_lengths", "int32"), np.concatenate(parents), targets_N,
        joined(rows, "temperatures", "float32"),
    )  # fmt: skip


def joined(rows: Sequence[Row], name: str, dtype: str) -> npt.NDArray:
    """One of the rows' arrays, one row after the other."""
    return np.concatenate([array(getattr(row, name), dtype) for row in rows])

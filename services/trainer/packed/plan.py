"""Which queries attend together, and to which keys: blocks whose cost follows the unique tokens.

A block is a stretch of the depth-first order. What its tokens see *before* the block lies on one path, that of its first token: whatever follows
a run in depth-first order hangs from the run or from one of its ancestors. So a block's keys are that path and the block itself, the leading
`common` of them seen by all its queries; only the rest needs a mask.

    tokens   1 2 3 ─┬─ 4 5 6 7 8          block of 7 8 9 10: keys 1 2 3 4 5 6 | 7 8 9 10
                    └─ 9 10                                  common: 1 2 3
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from services.trainer.packed.forest import ROOT, Forest

QUERIES_MAX = 128
"""Tokens of a block. Half of its own square is computed in vain; a pair costs the same from 32 queries on (docs/tree-training.md)."""
CALL_COST = 4096
"""Query–key pairs that cost as much as one more block: tokens of several small runs share a block where that is cheaper."""


@dataclass(frozen=True)
class Block:
    """Queries are the tokens [start, stop)."""

    start: int
    stop: int
    ranges: list[tuple[int, int]]
    """Keys in the order of their positions, as stretches of tokens; the last ends with the block itself."""
    keys: int
    common: int
    """Leading keys that every query of the block sees."""

    @property
    def pairs(self) -> int:
        return (self.stop - self.start) * self.keys

    def keys_K(self) -> npt.NDArray:
        """int64, indices of the keys."""
        return np.concatenate([np.arange(start, stop) for start, stop in self.ranges])


def plan_blocks(forest: Forest, window: int | None = None) -> list[Block]:
    """Blocks that cover all tokens in order. `window`: a token sees itself and at most window − 1 positions before it."""
    blocks, start, run = [], 0, 0
    while start < forest.tokens:
        while start >= forest.starts_R[run] + forest.lengths_R[run]:
            run += 1
        stop, seen = _extend(forest, run, start)
        blocks.append(_block(forest, run, start, stop, seen, window))
        start = stop
    return blocks


def _extend(forest: Forest, run: int, start: int) -> tuple[int, int]:
    """Where the block from `start` in `run` ends, and how many positions before it each of its tokens sees at least."""
    depth = int(forest.depths_R[run]) + start - int(forest.starts_R[run])
    stop = min(int(forest.starts_R[run] + forest.lengths_R[run]), start + QUERIES_MAX)
    seen = {run: depth}
    for follower in range(run + 1, len(forest.lengths_R)):
        length, at = int(forest.lengths_R[follower]), int(forest.depths_R[follower])
        size = stop - start
        if forest.starts_R[follower] != stop or size + length > QUERIES_MAX:
            break
        more = (size + length) * (depth + size + length) - size * (depth + size)
        if more > length * (at + length) + CALL_COST:
            break
        parent = int(forest.parents_R[follower])
        if parent == ROOT:
            seen[follower] = 0
        else:
            seen[follower] = seen[parent] if parent in seen else at
        stop += length
    return stop, min(seen.values())


def _block(forest: Forest, run: int, start: int, stop: int, common: int, window: int | None) -> Block:
    ranges: list[tuple[int, int]] = []
    lowest = 0
    if window is not None:
        lowest = max(0, _lowest_position(forest, run, start, stop) - window + 1)
        common = 0  # what the first query sees the last may not
    for ancestor in forest.path(run):
        begin = int(forest.starts_R[ancestor]) + max(0, lowest - int(forest.depths_R[ancestor]))
        end = stop if ancestor == run else int(forest.starts_R[ancestor] + forest.lengths_R[ancestor])
        begin = min(begin, start) if ancestor == run else begin
        if begin >= end:
            continue
        if ranges and ranges[-1][1] == begin:
            ranges[-1] = (ranges[-1][0], end)
        else:
            ranges.append((begin, end))
    return Block(start, stop, ranges, sum(end - begin for begin, end in ranges), common)


def _lowest_position(forest: Forest, run: int, start: int, stop: int) -> int:
    """Of the block's queries: that of its first token, or of a run's first within it."""
    first = int(forest.depths_R[run]) + start - int(forest.starts_R[run])
    later = (forest.starts_R > start) & (forest.starts_R < stop)
    return min([first, *forest.depths_R[later].tolist()])


def visible_QK(forest: Forest, block: Block, window: int | None = None, first_key: int = 0) -> npt.NDArray:
    """bool, which query sees which of the block's keys from `first_key` on."""
    queries_Q, keys_K = np.arange(block.start, block.stop)[:, None], block.keys_K()[first_key:]
    seen_QK = (keys_K <= queries_Q) & (queries_Q < forest.ends_T[keys_K])
    if window is not None:
        positions_T = forest.positions_T
        seen_QK &= positions_T[queries_Q] - positions_T[keys_K] < window
    return seen_QK

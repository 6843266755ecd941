"""Runs → nodes in one order, whatever order the runs came about in.

    K   marks: places where a node must end, each one integer (run, position), rising
    N   nodes: the pieces between marks, and the root

A node ends where a context ends, where a run branches off, and where the owner changes. Those are the same sets in any order of arrival, and so
are, once they are numbered depth-first by their calls, the nodes.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from services.trajproc.core.tree.problems import Problem
from services.trajproc.core.tree.runs import NO_RUN, Placed, Run
from services.trajproc.core.tree.tree import NOT_SAMPLED, ROOT, Tree

POSITION_BITS = 32


def freeze(
    calls: Sequence[Placed], runs: Sequence[Run], trained: frozenset[str], set_aside: dict[str, Problem]
) -> Tree:
    """`calls` in the order in which they are numbered; `trained`: roles whose samples are preferred as owners, but for calls that are set aside."""
    index = {id(placed): number for number, placed in enumerate(calls)}
    run_starts = np.array([run.start for run in runs], np.int64)
    may_be_target_C = [call.record.role in trained and call.record.call_id not in set_aside for call in calls]
    marks_K, owners_K = _owned(calls, runs, run_starts, may_be_target_C)
    run_K, stop_K = marks_K >> POSITION_BITS, marks_K & ((1 << POSITION_BITS) - 1)
    is_first_K = np.diff(run_K, prepend=-1) > 0
    start_K = np.where(is_first_K, run_starts[run_K], np.roll(stop_K, 1))
    parent_K = np.arange(len(marks_K)) - 1  # the piece before in the same run; ROOT − 1 is the root
    for first in np.flatnonzero(is_first_K):
        run = runs[run_K[first]]
        parent_K[first] = np.searchsorted(marks_K, _mark(run.parent, run.start)) if run.parent != NO_RUN else -1
    end_C = np.searchsorted(marks_K, np.array([_mark(*placed.end) for placed in calls], np.int64))
    order_N, lasts_N = _depth_first(parent_K, start_K, end_C)
    rank_K = np.empty(len(marks_K) + 1, np.int64)  # piece → node; the last entry answers for piece −1, the root
    rank_K[order_N] = np.arange(1, len(order_N) + 1)
    rank_K[-1] = ROOT
    creators = np.array([index[id(run.placed)] for run in runs], np.int64)
    owners_N = owners_K[order_N]
    return Tree(
        parents=_with_root(ROOT, rank_K[parent_K[order_N]]),
        starts=_with_root(0, start_K[order_N]),
        lengths=_with_root(0, (stop_K - start_K)[order_N]),
        owners=_with_root(NOT_SAMPLED, owners_N),
        lasts=lasts_N,
        ends=rank_K[end_C].astype(np.int32),
        calls=[placed.record for placed in calls],
        sources=_with_root(NOT_SAMPLED, np.where(owners_N != NOT_SAMPLED, owners_N, creators[run_K[order_N]])),
        set_aside=set_aside,
    )


def _mark(run: int, position: int) -> int:
    return run << POSITION_BITS | position


def _with_root(root: int, values: npt.NDArray) -> npt.NDArray:
    return np.concatenate([[root], values]).astype(np.int32)


def _owned(
    calls: Sequence[Placed], runs: Sequence[Run], run_starts: npt.NDArray, may_be_target_C: Sequence[bool]
) -> tuple[npt.NDArray, npt.NDArray]:
    """Marks int64[K] and the owner of the piece before each, int64[K].

    Of those who sampled a token in the same context a call that may be trained owns it rather than another, an earlier rather than a
    later one: the worst claim is painted first.
    """
    claims = [
        (may_be_target_C[number], -number, _mark(run, start), _mark(run, stop))
        for number, placed in enumerate(calls) for run, start, stop in _sampled(placed)
    ]  # fmt: skip
    ends = [_mark(*placed.end) for placed in calls]
    branches = [_mark(run.parent, run.start) for run in runs if run.parent != NO_RUN]
    needed = np.unique(np.array([*ends, *branches], np.int64))
    edges = np.array([edge for claim in claims for edge in claim[2:]], np.int64)
    edges = edges[(edges & ((1 << POSITION_BITS) - 1)) > run_starts[edges >> POSITION_BITS]] if len(edges) else edges
    marks = np.union1d(needed, edges)
    owners = np.full(len(marks), NOT_SAMPLED)
    for _, number, start, stop in sorted(claims):
        owners[np.searchsorted(marks, start, "right") : np.searchsorted(marks, stop, "right")] = -number
    is_needed = np.isin(marks, needed, assume_unique=True) | (owners != np.roll(owners, -1))
    return marks[is_needed], owners[is_needed]


def _sampled(placed: Placed) -> list[tuple[int, int, int]]:
    """(run, first position, one past the last) of the record's output."""
    stops = [position for position, _ in placed.legs[1:]] + [placed.total]
    spans = [
        (run, max(start, placed.record.prompt_tokens), stop)
        for (start, run), stop in zip(placed.legs, stops, strict=True)
    ] if placed.legs else []  # fmt: skip
    return [span for span in spans if span[1] < span[2]]


def _depth_first(parent_K: npt.NDArray, start_K: npt.NDArray, end_C: npt.NDArray) -> tuple[npt.NDArray, npt.NDArray]:
    """Pieces in depth-first order int64[N−1], and of each node in that order (the root too) where its subtree ends, int32[N].

    Children stand by the lowest call that ends in their subtree; every leaf is the end of a call.
    """
    pieces, calls = len(parent_K), len(end_C)
    first_K = np.full(pieces + 1, calls)  # the last entry of each array answers for piece −1, the root
    np.minimum.at(first_K, end_C, np.arange(calls))
    above, first, sizes = parent_K.tolist(), first_K.tolist(), [1] * (pieces + 1)
    for piece in np.argsort(-start_K, kind="stable").tolist():  # whatever hangs from a piece starts later than it does
        first[above[piece]] = min(first[above[piece]], first[piece])
        sizes[above[piece]] += sizes[piece]
    numbers, taken = [0] * (pieces + 1), [1] * (pieces + 1)
    for piece in np.lexsort((first[:-1], start_K)).tolist():  # siblings start together
        numbers[piece] = numbers[above[piece]] + taken[above[piece]]
        taken[above[piece]] += sizes[piece]
    order_N = np.argsort(numbers[:-1])
    lasts_K = np.add(numbers, sizes)
    return order_N, np.concatenate([lasts_K[-1:], lasts_K[order_N]]).astype(np.int32)

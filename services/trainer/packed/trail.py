"""Keys of the path that a walk over the blocks is on, in one stretch of memory.

Blocks come in depth-first order, so from one to the next most of what is needed lies where it lay: at its depth. Each token is copied in once (twice
where a block of several small runs has lain over it) instead of once for every block that sees it.

    tokens   1 2 3 ─┬─ 4 5      trail at the first leaf   1 2 3 4 5
                    └─ 6 7      at the second             1 2 3 6 7    moves: 6 7 come in where 4 5 were

Shapes: T tokens, K key heads, D dimensions of a key or value, P places of the trail.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from services.trainer.packed.plan import Block

NOBODY = -1


class Move(NamedTuple):
    """Tokens [start, stop) come to the places from `place` on, or leave them."""

    place: int
    start: int
    stop: int


class Moves(NamedTuple):
    """What has to happen before a block is computed."""

    first: int
    """Place of the block's first key."""
    kept: int
    """Leading keys of the block that lie where they must."""
    leave: list[Move]
    come: list[Move]


def plan_moves(blocks: Sequence[Block], positions_T: npt.NDArray) -> tuple[list[Moves], list[Move], int]:
    """(moves of each block, who leaves after the last one, P)."""
    firsts = [int(positions_T[block.ranges[0][0]]) for block in blocks]
    places = max(first + block.keys for first, block in zip(firsts, blocks, strict=True))
    held_P = np.full(places, NOBODY)
    found = []
    for first, block in zip(firsts, blocks, strict=True):
        keys_K = block.keys_K()
        here_K = held_P[first : first + block.keys]
        kept = int(np.argmax(here_K != keys_K))  # the block's own tokens are never there
        found.append(Moves(first, kept, _stretches(here_K, first, kept), _stretches(keys_K, first, kept)))
        here_K[kept:] = keys_K[kept:]
    return found, _stretches(held_P, 0, 0), places


def _stretches(tokens: npt.NDArray, first: int, begin: int) -> list[Move]:
    """Tokens from the index `begin` on, which lie from place `first` on, as moves."""
    cuts = np.flatnonzero(np.diff(tokens[begin:]) != 1) + begin + 1
    edges = [begin, *cuts.tolist(), len(tokens)]
    return [
        Move(first + one, int(tokens[one]), int(tokens[one]) + other - one)
        for one, other in pairwise(edges)
        if tokens[one] != NOBODY
    ]


class Trail:
    """Keys (or values) as the blocks need them."""

    def __init__(self, from_TKD: torch.Tensor, places: int) -> None:
        self._from_TKD = from_TKD
        self._at_PKD = from_TKD.new_empty(places, *from_TKD.shape[1:])

    def move(self, moves: Moves, keys: int) -> torch.Tensor:
        """[K, N, D] of the next block, to be read before the one after it."""
        for place, start, stop in moves.come:
            self._at_PKD[place : place + stop - start] = self._from_TKD[start:stop]
        return self._at_PKD[moves.first : moves.first + keys].transpose(0, 1)


class GradientTrail:
    """Their gradients: collected in float32 where the keys lie, given to the tokens when these leave."""

    def __init__(self, like_TKD: torch.Tensor, places: int) -> None:
        self._into_TKD = like_TKD.new_zeros(like_TKD.shape, dtype=torch.float32)
        self._at_PKD = like_TKD.new_empty(places, *like_TKD.shape[1:], dtype=torch.float32)

    def add(self, moves: Moves, more_KND: torch.Tensor) -> None:
        """The next block's."""
        self._leave(moves.leave)
        more_NKD, first, kept = more_KND.transpose(0, 1), moves.first, moves.kept
        if kept:
            self._at_PKD[first : first + kept] += more_NKD[:kept]
        self._at_PKD[first + kept : first + len(more_NKD)] = more_NKD[kept:]

    def all(self, last_leave: Sequence[Move]) -> torch.Tensor:
        """[T, K, D] float32, after the last block."""
        self._leave(last_leave)
        return self._into_TKD

    def _leave(self, moves: Sequence[Move]) -> None:
        for place, start, stop in moves:
            self._into_TKD[start:stop] += self._at_PKD[place : place + stop - start]

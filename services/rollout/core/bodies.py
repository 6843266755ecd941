"""The bytes of a list that a body holds, an item a piece, kept so that the next body is compared with them in few steps.

    pieces   p0 p1 … p15 | p16 … p31 | p32 … p47 p48 p49          each item's bytes, with what stands before it
    blocks   └─ b0 ────┘  └─ b1 ───┘  └ loose, at least BLOCK ┘

Each byte is kept once: a piece that stands in a block is a place in it, whoever holds the piece. The last pieces stay loose, for the end of a
conversation is where its next body may differ (a mark that moves, a thought left out).
"""

from array import array
from collections.abc import Iterable
from itertools import accumulate

BLOCK = 16
"""Pieces. What a comparison costs beside its bytes falls with it, until the loose ones are most of it."""


class Piece:
    """One item's bytes."""

    __slots__ = ("_at", "_held", "_size")

    def __init__(self, data: bytes) -> None:
        self._held, self._at, self._size = data, 0, len(data)

    def __len__(self) -> int:
        return self._size

    def data(self) -> bytes:
        return self._held[self._at : self._at + self._size]

    def move(self, block: bytes, at: int) -> None:
        """It stands at `at` of `block`, too: from here on only there."""
        self._held, self._at = block, at


class Pieces(list[Piece]):
    """Of one body. Never changed: bodies that begin alike share what they have in common."""

    def __init__(self, before: "Pieces | None" = None, kept: int = 0, new: Iterable[bytes] = ()) -> None:
        """The first `kept` of `before`, and then `new`."""
        super().__init__(before[:kept] if before is not None else ())
        self._ends = before._ends[:kept] if before is not None else array("Q")
        self._blocks = before._blocks[: kept // BLOCK] if before is not None else []
        for data in new:
            self.append(Piece(data))
            self._ends.append(self.end(len(self._ends)) + len(data))
        while len(self) >= (len(self._blocks) + 2) * BLOCK:
            self._join(len(self._blocks) * BLOCK)

    def end(self, count: int) -> int:
        """Bytes of the first `count`."""
        return self._ends[count - 1] if count else 0

    def common(self, body: bytes) -> int:
        """How many of the first are what `body` begins with."""
        first = BLOCK * _common(body, self._blocks, 0)
        is_all = first == BLOCK * len(self._blocks)
        rest = [piece.data() for piece in self[first : None if is_all else first + BLOCK]]
        return first + _common(body, rest, self.end(first))

    def _join(self, first: int) -> None:
        pieces, at = self[first : first + BLOCK], 0
        block = b"".join(piece.data() for piece in pieces)
        for piece in pieces:
            piece.move(block, at)
            at += len(piece)
        self._blocks.append(block)


def _common(body: bytes, parts: list[bytes], at: int) -> int:
    for count, is_there in enumerate(map(body.startswith, parts, accumulate(map(len, parts), initial=at))):
        if not is_there:
            return count
    return len(parts)

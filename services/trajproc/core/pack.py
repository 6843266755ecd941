"""Rows → micro-steps within a token budget, the same for the same rows."""

from collections.abc import Sequence

from gyre.records import Row

ROW_BYTES_PER_TOKEN = 21
"""int32 tokens and versions, float32 log-probabilities, advantages and weights, uint8 targets."""
ROW_BYTES_EXTRA = 512
"""Names, trace context and framing of a row, rounded up."""


def row_bytes(row: Row) -> int:
    """Upper bound of the row's size on the bus."""
    return row.length * ROW_BYTES_PER_TOKEN + ROW_BYTES_EXTRA


def pack_rows(rows: Sequence[Row], tokens_max: int, bytes_max: int) -> list[list[Row]]:
    """First fit, longest row first; rows of a piece keep their order. A row over a budget makes a piece of its own."""
    pieces: list[list[int]] = []
    tokens: list[int] = []
    sizes: list[int] = []
    for index in sorted(range(len(rows)), key=lambda index: (-rows[index].length, index)):
        row = rows[index]
        for piece, indices in enumerate(pieces):
            if tokens[piece] + row.length <= tokens_max and sizes[piece] + row_bytes(row) <= bytes_max:
                indices.append(index)
                tokens[piece] += row.length
                sizes[piece] += row_bytes(row)
                break
        else:
            pieces.append([index])
            tokens.append(row.length)
            sizes.append(row_bytes(row))
    return [[rows[index] for index in sorted(piece)] for piece in pieces]

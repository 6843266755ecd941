"""Samples → micro-steps within a token budget, the same for the same samples (B8).

A sample is never divided: its cell computes what is counted by execution, such as the target tokens that a loss keeps.
"""

from collections.abc import Sequence

from gyre.records import Row

ROW_BYTES_EXTRA = 512
"""Names, trace context and framing of a row, rounded up."""
ROW_ARRAYS = ("tokens", "run_lengths", "run_parents", "sequences", "logprobs", "versions", "advantages", "temperatures")


def row_bytes(row: Row) -> int:
    """Upper bound of the row's size on the bus."""
    return sum(len(getattr(row, name)) for name in ROW_ARRAYS) + ROW_BYTES_EXTRA


def pack_samples(samples: Sequence[Sequence[Row]], tokens_max: int, bytes_max: int) -> list[list[Row]]:
    """Rows of each sample → pieces, first fit, largest sample first; samples of a piece keep their order.

    A sample over a budget makes a piece of its own.
    """
    lengths = [sum(row.length for row in rows) for rows in samples]
    sizes = [sum(map(row_bytes, rows)) for rows in samples]
    pieces: list[list[int]] = []
    for index in sorted(range(len(samples)), key=lambda index: (-lengths[index], index)):
        for piece in pieces:
            fits = sum(lengths[other] for other in piece) + lengths[index] <= tokens_max
            if fits and sum(sizes[other] for other in piece) + sizes[index] <= bytes_max:
                piece.append(index)
                break
        else:
            pieces.append([index])
    return [[row for index in sorted(piece) for row in samples[index]] for piece in pieces]

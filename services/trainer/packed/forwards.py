"""Rows of whole samples → forwards within a token budget."""

from collections.abc import Sequence

from gyre.records import Row


def samples_of(rows: Sequence[Row]) -> list[list[Row]]:
    """Rows by sample, in order of first appearance; those without a target left out."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        if row.targets.any():
            found.setdefault(row.sample_id, []).append(row)
    return list(found.values())


def plan_forwards(samples: Sequence[list[Row]], tokens_max: int) -> list[list[list[Row]]]:
    """Jobs, each a list of forwards, each a list of rows. A job of one forward holds whole samples, one of several a single sample.

    First fit in the given order, so that what is computed together follows from the micro-step alone.
    """
    whole = [rows for rows in samples if len(rows) == 1 or _tokens(rows) <= tokens_max]
    large = [rows for rows in samples if len(rows) > 1 and _tokens(rows) > tokens_max]
    return [[rows] for rows in _first_fit(whole, tokens_max)] + [
        _first_fit([[row] for row in rows], tokens_max) for rows in large
    ]


def _first_fit(pieces: Sequence[list[Row]], tokens_max: int) -> list[list[Row]]:
    """Pieces put together up to `tokens_max` tokens; a larger one stays by itself."""
    bins: list[list[Row]] = []
    for piece in pieces:
        for found in bins:
            if _tokens(found) + _tokens(piece) <= tokens_max:
                found += piece
                break
        else:
            bins.append(list(piece))
    return bins


def _tokens(rows: Sequence[Row]) -> int:
    return sum(row.length for row in rows)

"""Stretches of an execution that one weight version sampled."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import sqlalchemy as sa

from services.ledger.explorer.answers.columns import columns_of, first_of, real

_CALLS = """
SELECT sample_id, started_at_s, first_token_at_s, at_s, version_min, version_mean, version_max FROM calls
WHERE run = :run AND sample_id IN :ids
"""


@dataclass(frozen=True)
class Segments:
    """Of S samples, in order of samples and time: those of sample s are `first[s]` up to `first[s + 1]`."""

    first: np.ndarray
    """int64[S + 1]"""
    from_s: np.ndarray
    """float64[N]"""
    to_s: np.ndarray
    version: np.ndarray
    """int64[N]"""

    @property
    def counts(self) -> np.ndarray:
        """int64[S]"""
        return np.diff(self.first)

    def of(self, sample: int) -> list[tuple[float, float, int]]:
        """[(from_s, to_s, version)] of one."""
        own = slice(self.first[sample], self.first[sample + 1])
        return list(zip(self.from_s[own].tolist(), self.to_s[own].tolist(), self.version[own].tolist(), strict=True))


def segments_of(connection: sa.Connection, run: str, ids: Sequence[str]) -> Segments:
    """Of a call that two versions sampled it is known how much each did, not when it changed: the mean version's share of the way is taken."""
    sample, columns = columns_of(connection, _CALLS, run, ids, 6)
    started, first, at, low, mean, high = map(real, columns)
    is_known = ~np.isnan(low) & ~np.isnan(at)
    sample, started, first, at, low, mean, high = (
        one[is_known] for one in (sample, started, first, at, low, mean, high)
    )
    begin = np.minimum(first_of(first, started, at), at)
    has_two = low != high
    change = at - (at - begin) * (mean - low) / np.where(has_two, high - low, 1)
    return merged(
        len(ids),
        np.concatenate([sample, sample[has_two]]),
        np.concatenate([begin, change[has_two]]),
        np.concatenate([np.where(has_two, change, at), at[has_two]]),
        np.concatenate([low, high[has_two]]).astype(np.int64),
    )


def merged(samples: int, sample: np.ndarray, begin: np.ndarray, end: np.ndarray, version: np.ndarray) -> Segments:
    """Neighbours of one version are one segment; each goes on until the next begins, so that time in tools is seen too.

    sample, begin, end, version: [N] of stretches in any order, `sample` below `samples`.
    """
    order = np.lexsort((version, end, begin, sample))
    sample, begin, end, version = sample[order], begin[order], end[order], version[order]
    is_new = np.ones(len(sample), bool)
    is_new[1:] = (sample[1:] != sample[:-1]) | (version[1:] != version[:-1])
    starts = np.flatnonzero(is_new)
    own, from_s = sample[starts], begin[starts]
    to_s = np.maximum.reduceat(end, starts) if len(starts) else end
    has_next = own[1:] == own[:-1]
    to_s[:-1] = np.where(has_next, np.maximum(from_s[:-1], from_s[1:]), to_s[:-1])
    return Segments(np.searchsorted(own, np.arange(samples + 1)), from_s, to_s, version[starts])

"""Token arrays inside records: little-endian bytes on the wire, numpy views in use. No per-token Python objects."""

import msgspec
import numpy as np
import numpy.typing as npt

_DTYPES = {"int32": np.dtype("<i4"), "float32": np.dtype("<f4"), "uint8": np.dtype("u1")}


def pack(values: object, dtype: str) -> bytes:
    """Any one-dimensional sequence → bytes of `dtype` (int32, float32 or uint8)."""
    return np.ascontiguousarray(values, dtype=_DTYPES[dtype]).tobytes()


def array(data: bytes, dtype: str) -> npt.NDArray:
    """Bytes → read-only view. Raises ValueError when the length is no multiple of the item size."""
    return np.frombuffer(data, dtype=_DTYPES[dtype])


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """A packed training row: part of one sample's chosen subtree, every token once, depth-first (B8).

    Arrays of T are aligned to the token they speak of, arrays of K to the targets among them, in their order. A run continues the end of another
    (its parent), which stands before it; what hangs from a run follows it at once. So a token's context is its run up to it, before that its
    parent's run, and so on up; its position is the length of that. A token that another row trains may stand here as context (sequence −1). The
    first token of a tree is never a target.
    """

    sample_id: str
    part: int
    """Which of the sample's rows; more than one only where the subtree is over the budget."""
    tokens: bytes
    """int32[T]"""
    run_lengths: bytes
    """int32[R], their sum is T."""
    run_parents: bytes
    """int32[R], index of the run whose end it continues; −1: it begins at the root."""
    sequences: bytes
    """int32[T], which call's target the token is in this row (index within the sample); −1: not a target. A call's targets stand in one row, all of
    them."""
    logprobs: bytes
    """float32[K], behaviour log-probability of each target."""
    versions: bytes
    """int32[K], policy version that sampled it."""
    advantages: bytes
    """float32[K]"""
    temperatures: bytes
    """float32[K], temperature it was drawn at: the trainer's log-probability is taken at the same."""
    traceparent: str = ""

    @property
    def length(self) -> int:
        """T."""
        return len(self.tokens) // 4

    @property
    def runs(self) -> int:
        """R."""
        return len(self.run_lengths) // 4

    @property
    def targets(self) -> npt.NDArray:
        """bool[T]"""
        return array(self.sequences, "int32") >= 0

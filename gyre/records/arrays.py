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
    """One training row: a chosen path of one sample, as the model saw it.

    All arrays have length T and are aligned to the token they speak of: `targets[t]`, `logprobs[t]`, `versions[t]`,
    `advantages[t]` and `weights[t]` concern predicting `tokens[t]` from `tokens[:t]`; index 0 is never a target.
    """

    sample_id: str
    path: int
    """Which of the sample's chosen paths."""
    tokens: bytes
    """int32[T]"""
    targets: bytes
    """uint8[T], 1 where this row trains the token (each target in one row only, B6)."""
    logprobs: bytes
    """float32[T], behaviour log-probability; 0 where not sampled by the policy."""
    versions: bytes
    """int32[T], policy version that sampled the token; −1 where not sampled."""
    advantages: bytes
    """float32[T]; 0 where not a target."""
    weights: bytes
    """float32[T], 1/|U_e| on targets (B7); the batch divisor is applied at the update."""
    traceparent: str = ""
    temperature: float = 1.0
    """Temperature the targets were drawn at; the trainer's log-probabilities are taken at the same."""

    @property
    def length(self) -> int:
        """T."""
        return len(self.targets)

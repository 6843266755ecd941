"""What trainers made of single target tokens: log-probability, whether it was in the gradient, whether it was clipped (C8).

tokens/<cell>.log in the run's folder, one file a training cell, appended to: a frame for each sample of each micro-step. Evidence, not state:
nothing is forced to disk, nothing reads it but who asks about one sample, and a frame that a crash tore is passed over, with the one behind
it. 5 bytes a token and about 60 a sample.
"""

import struct
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

import msgspec
import numpy as np

HEADER = struct.Struct("<4sHII")
"""Magic, length of the sample id, length of the payload, CRC-32 of both."""
MAGIC = b"GYK1"
KEPT, CLIPPED = 1, 2
"""Bits of `flags`."""


class TokensSeen(msgspec.Struct, frozen=True, array_like=True):
    """Of one sample: its N target tokens in the order of its calls, in each call in the order they were sampled."""

    step: int
    calls: bytes
    """int32[C], call indices"""
    counts: bytes
    """int32[C], targets of each call; they sum to N"""
    logprobs: bytes
    """float32[N], under the weights that the step began with"""
    flags: bytes
    """uint8[N], KEPT | CLIPPED"""


def tokens_seen(step: int, calls_N: np.ndarray, logprobs_N: np.ndarray, flags_N: np.ndarray) -> TokensSeen:
    """`calls_N`: call index of each target; targets of one call stand together or are put together in their order."""
    order = np.argsort(calls_N, kind="stable")
    calls, counts = np.unique(calls_N, return_counts=True)
    return TokensSeen(
        step, calls.astype("<i4").tobytes(), counts.astype("<i4").tobytes(), logprobs_N[order].astype("<f4").tobytes(),
        flags_N[order].astype("u1").tobytes(),
    )  # fmt: skip


class TokenLog:
    """The writer of one cell. OSError is the caller's to bear: training goes on without."""

    def __init__(self, folder: Path, cell: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / f"{cell}.log"

    def put(self, seen: Iterable[tuple[str, TokensSeen]]) -> None:
        """Append, in one write."""
        frames = []
        for sample, tokens in seen:
            name, payload = sample.encode(), msgspec.msgpack.encode(tokens)
            frames.append(
                HEADER.pack(MAGIC, len(name), len(payload), zlib.crc32(payload, zlib.crc32(name))) + name + payload
            )
        with self._path.open("ab") as file:
            file.write(b"".join(frames))


def tokens_of(folder: Path, sample: str) -> TokensSeen | None:
    """The newest word on a sample over all cells' logs; None where there is none."""
    found: TokensSeen | None = None
    wanted = sample.encode()
    for path in sorted(folder.glob("*.log")):
        with path.open("rb") as file:
            for payload in _payloads(file, wanted):
                seen = msgspec.msgpack.decode(payload, type=TokensSeen)
                if found is None or seen.step >= found.step:
                    found = seen
    return found


def _payloads(file: BinaryIO, wanted: bytes) -> Iterator[bytes]:
    """Whole frames of one sample. After a torn frame the next begins at its magic word."""
    at = 0
    while True:
        file.seek(at)
        header = file.read(HEADER.size)
        if len(header) < HEADER.size:
            return
        magic, name_size, size, crc = HEADER.unpack(header)
        if magic != MAGIC:
            at = _next(file, at + 1)
            continue
        name = file.read(name_size)
        if name == wanted:
            payload = file.read(size)
            if zlib.crc32(payload, zlib.crc32(name)) == crc:
                yield payload
        at += HEADER.size + name_size + size


def _next(file: BinaryIO, at: int) -> int:
    """Where the next magic word stands at or after `at`; the end of the file where none does."""
    file.seek(at)
    rest = file.read()
    found = rest.find(MAGIC)
    return at + (found if found >= 0 else len(rest))

"""One execution's snapshots, by ordinal."""

import time
from pathlib import Path

import msgspec

from gyre.env.snapshots.reading import Seen
from gyre.env.snapshots.store import Store

KEPT = 2
"""Newest snapshots that stay referred to: the one to go back to, and the one before should the newest turn out unusable."""


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """A tree at one moment of an execution."""

    ordinal: int
    """Counts the execution's snapshots, from 1."""
    digest: str
    files: int
    bytes: int
    bytes_written: int
    """What it cost the store."""
    took_s: float
    left_out: list[str] = []


class Series:
    """Takes and restores one tree. Methods block; call them in a thread, one at a time."""

    def __init__(self, store: Store, name: str, ordinal: int = 0) -> None:
        """`name` is what the store keeps them under until `release`; `ordinal` of the last one, where a series goes on."""
        self._store, self._name = store, name
        self._seen = Seen()
        self.ordinal = ordinal

    def take(self, tree: Path, is_at_once: bool = False) -> Snapshot:
        """As Store.take, which says what it raises; then the ordinal is not used."""
        begun_s = time.perf_counter()
        taken = self._store.take(tree, self._seen, self._name, KEPT, is_at_once)
        self.ordinal += 1
        return Snapshot(
            ordinal=self.ordinal, digest=taken.digest, files=taken.files, bytes=taken.bytes, bytes_written=taken.bytes_written,
            took_s=time.perf_counter() - begun_s, left_out=taken.left_out,
        )  # fmt: skip

    def restore(self, digest: str, into: Path) -> None:
        """Raises as Store.restore."""
        self._store.restore(digest, into)

    def release(self) -> None:
        """The execution is over."""
        self._store.release(self._name)

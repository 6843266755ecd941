"""Snapshots of working trees on disk, by content.

    objects/ab/cdef…      a file's content or a folder's listing, by sha256; written once, however many trees and executions hold it
    manifests/DIGEST      a tree: the listing of its root (manifest.py)
    references/NAME       the snapshots that somebody still needs, one digest a line
    temporary/            what is being written
    lock                  shared by those who take and restore, exclusive to the collection of what nobody refers to

Everything appears under its name by a rename when it is whole, what is named before what names it. So a process that dies at any moment
leaves a store whose snapshots are all whole, and at most unnamed bytes that `collect` removes. After a loss of power what was lost is noticed by
its digest, never handed out. Any number of processes on one machine may share a store.
"""

import contextlib
import fcntl
import os
import re
import secrets
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from gyre.env.snapshots import mounts, trees
from gyre.env.snapshots.manifest import Entry, Limits, decode, encode
from gyre.env.snapshots.objects import Objects, write
from gyre.env.snapshots.reading import Seen, read_tree
from gyre.errors import InvalidInput, NotFound

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,200}")


@dataclass(frozen=True, slots=True)
class Taken:
    """A tree in the store."""

    digest: str
    files: int
    bytes: int
    """Contents of all its files."""
    bytes_written: int
    """Of which the store did not have, with the listings of folders."""
    left_out: list[str]
    """Sockets, pipes and devices, by path."""


class Store:
    """Methods block; call them in a thread."""

    def __init__(self, root: Path, limits: Limits | None = None) -> None:
        self.root = root
        self._limits = limits or Limits()
        self._objects = Objects(root / "objects")
        # What is in it is no less readable than it is itself, whatever it was in its tree.
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name in ("objects", "manifests", "references", "temporary"):
            (root / name).mkdir(exist_ok=True)

    @property
    def written(self) -> int:
        """Bytes of contents that this process wrote, also for snapshots that came to nothing: they stay until `collect`."""
        return self._objects.written

    def take(
        self, tree: Path, seen: Seen | None = None, reference: str = "", keep: int = 1, is_at_once: bool = False
    ) -> Taken:
        """The tree as it is now. `seen` is kept from one snapshot of the tree to the next; `reference` then refers to this one and the `keep` - 1
        before; `is_at_once` as of read_tree. Raises TooLarge, TreeChanged, NotFound, MountedInside, PermissionError."""
        mounts.refuse(tree)
        seen = Seen() if seen is None else seen
        with self._locked(fcntl.LOCK_SH), self._part() as part:
            reading = read_tree(tree, self._objects, self._limits, seen, part, is_at_once)
            data, digest, listings = encode(reading.entries)
            for name, listing in listings.items():
                reading.bytes_written += self._objects.put(name, listing, part)
            path = self.root / "manifests" / digest
            if not path.exists() or path.stat().st_size != len(data):
                write(part, data, path)
                reading.bytes_written += len(data)
            if reference:
                self._refer(reference, [digest, *(d for d in self.referred(reference) if d != digest)][:keep], part)
        seen.clear()
        seen.update(reading.seen)
        files = sum(entry.kind == "f" for entry in reading.entries)
        return Taken(digest, files, reading.bytes, reading.bytes_written, reading.left_out)

    def restore(self, digest: str, into: Path, folder: str = "") -> None:
        """`into` is the tree as it was, or the folder at its root of that name, in one step; what was there before is gone. Raises NotFound,
        SnapshotDamaged, InvalidInput."""
        with self._locked(fcntl.LOCK_SH):
            entries = self.entries(digest)
            entries = _below(entries, os.fsencode(folder)) if folder else entries
            with trees.replacing(into) as fresh:
                for entry in entries[1:]:
                    path = os.fsencode(fresh) + b"/" + entry.path
                    if entry.kind == "d":
                        os.mkdir(path, 0o700)
                    elif entry.kind == "l":
                        os.symlink(entry.target, path)
                    else:
                        self._objects.make(entry, path)
                for entry in reversed(entries):  # last, as it may forbid to write into it
                    if entry.kind == "d":
                        os.chmod(os.fsencode(fresh) + b"/" + entry.path, entry.mode)

    def keep(self, digest: str) -> None:
        """It stays, whatever becomes of the execution that it was taken of, until its reference `fork-DIGEST` is released or too old. Raises
        NotFound, SnapshotDamaged, InvalidInput."""
        with self._locked(fcntl.LOCK_SH), self._part() as part:
            self.entries(digest)
            self._refer(f"fork-{digest}", [digest], part)

    def entries(self, digest: str) -> list[Entry]:
        """What is in a snapshot: the root, and folders before what is in them. Raises NotFound, SnapshotDamaged, InvalidInput."""
        if not re.fullmatch(r"[0-9a-f]{64}", digest):
            raise InvalidInput(f"{digest[:80]!r} is no snapshot's digest: 64 hexadecimal digits")
        try:
            data = (self.root / "manifests" / digest).read_bytes()
        except FileNotFoundError:
            raise NotFound(f"there is no snapshot {digest[:12]} in {self.root}") from None
        return decode(data, digest, self._objects.read)

    def references(self) -> list[str]:
        """Names under which snapshots are referred to, the newest first."""
        found = []
        for path in (self.root / "references").iterdir():
            with contextlib.suppress(FileNotFoundError):  # released meanwhile
                found.append((path.stat().st_mtime_ns, path.name))
        return [name for _, name in sorted(found, reverse=True)]

    def referred(self, reference: str) -> list[str]:
        """Digests, newest first; empty where nobody refers."""
        try:
            return self._reference(reference).read_text().split()
        except FileNotFoundError:
            return []

    def release(self, reference: str) -> None:
        """Nobody needs them any more under this name."""
        with self._locked(fcntl.LOCK_SH):
            self._reference(reference).unlink(missing_ok=True)

    def collect(self, age_s_max: float | None = None) -> int:
        """Remove what nobody refers to, waiting for those who take or restore; bytes freed. References that were not renewed for `age_s_max` seconds
        go first: their executions were lost."""
        with self._locked(fcntl.LOCK_EX):
            trees.remove(self.root / "temporary")
            (self.root / "temporary").mkdir()
            for path in (self.root / "references").iterdir():
                if age_s_max is not None and time.time() - path.stat().st_mtime > age_s_max:
                    path.unlink()
            kept = {digest for path in (self.root / "references").iterdir() for digest in path.read_text().split()}
            freed, wanted = 0, set()
            for path in (self.root / "manifests").iterdir():
                try:
                    entries = self.entries(path.name) if path.name in kept else []
                except InvalidInput:  # nothing can be restored from it, so it keeps nothing
                    entries = []
                if not entries:
                    freed += _unlink(path)
                wanted |= {entry.digest.hex() for entry in entries}
            for path in (self.root / "objects").glob("*/*"):
                if path.parent.name + path.name not in wanted:
                    freed += _unlink(path)
            return freed

    def _refer(self, reference: str, digests: list[str], part: Path) -> None:
        path = self._reference(reference)
        write(part, "\n".join(digests).encode(), path)

    def _reference(self, reference: str) -> Path:
        if not _NAME.fullmatch(reference) or reference in (".", ".."):
            raise InvalidInput(
                f"{reference[:80]!r} is no name for a reference: letters, digits, `_`, `.`, `-`, at most 200"
            )
        return self.root / "references" / reference

    @contextlib.contextmanager
    def _locked(self, how: int) -> Iterator[None]:
        lock = os.open(self.root / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, how)
            yield
        finally:
            os.close(lock)

    @contextlib.contextmanager
    def _part(self) -> Iterator[Path]:
        """Where one file at a time is written before it has its name."""
        part = self.root / "temporary" / secrets.token_hex(8)
        try:
            yield part
        finally:
            part.unlink(missing_ok=True)


def _below(entries: list[Entry], folder: bytes) -> list[Entry]:
    """As if `folder` were the root. Raises NotFound."""
    inside = [entry for entry in entries if entry.path == folder or entry.path.startswith(folder + b"/")]
    if not inside or inside[0].kind != "d":
        raise NotFound(f"the snapshot has no folder {os.fsdecode(folder)!r}")
    return [msgspec.structs.replace(entry, path=entry.path[len(folder) + 1 :]) for entry in inside]


def _unlink(path: Path) -> int:
    size = path.stat().st_size
    path.unlink()
    return size

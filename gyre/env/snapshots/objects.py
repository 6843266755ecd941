"""Contents of files and listings of folders, each once, by sha256: `objects/ab/cdef…`."""

import hashlib
import os
import sys
from pathlib import Path

from gyre.env.snapshots import trees
from gyre.env.snapshots.manifest import Entry
from gyre.errors import InvalidInput

SMALL_BYTES = 1 << 20
"""Read at once, and written only where the store has no such content yet."""


class SnapshotDamaged(InvalidInput):
    """A stored file is not what its digest says."""

    code = "snapshot_damaged"


class Objects:
    """The folder of contents."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._can_clone = True
        self.written = 0
        """Bytes, also for snapshots that came to nothing; of several threads that write at once one may not be counted."""

    def path(self, digest: bytes) -> Path:
        """Where this content is, or would be."""
        name = digest.hex()
        return self.root / name[:2] / name[2:]

    def has(self, digest: bytes, size: int) -> bool:
        """A file of another length is what a loss of power left; it is written again."""
        try:
            return os.stat(self.path(digest)).st_size == size
        except FileNotFoundError:
            return False

    def keep(self, source: int, size: int, part: Path) -> tuple[bytes, int]:
        """What is read from `source`, by digest, and the bytes that were not there yet. `part` is a place to write at before it has its name. No more
        than `size` is read: what grows meanwhile might grow without end."""
        if size <= SMALL_BYTES:
            data = b"".join(trees.chunks(source, size))
            digest = hashlib.sha256(data).digest()
            return digest, self.put(digest, data, part)
        target = os.open(part, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o444)
        try:
            if is_shared := self._can_clone and trees.clone(source, target):
                digest = _digest(target)
            else:
                self._can_clone = False
                if self.has(digest := _digest(source, size), size):  # reading twice costs less than writing once
                    return digest, 0
                os.lseek(source, 0, os.SEEK_SET)
                digest = _copy(source, target, size)
                self.written += size
        finally:
            os.close(target)
        if self.has(digest, size):
            return digest, 0
        os.rename(part, self._named(digest))
        return digest, 0 if is_shared else size

    def put(self, digest: bytes, data: bytes, part: Path) -> int:
        """Bytes that were not there yet."""
        if self.has(digest, len(data)):
            return 0
        write(part, data, self._named(digest))
        self.written += len(data)
        return len(data)

    def read(self, digest: bytes) -> bytes:
        """Raises SnapshotDamaged."""
        try:
            data = self.path(digest).read_bytes()
        except FileNotFoundError:
            raise SnapshotDamaged(f"the listing {digest.hex()[:12]} is not in {self.root}") from None
        if hashlib.sha256(data).digest() != digest:
            raise SnapshotDamaged(f"the listing {digest.hex()[:12]} is damaged in {self.root}")
        return data

    def make(self, entry: Entry, path: bytes) -> None:
        """The file of this entry at `path`, where nothing is yet. Raises SnapshotDamaged."""
        try:
            source = os.open(self.path(entry.digest), os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            raise SnapshotDamaged(
                f"the content of {entry.path!r}, {entry.digest.hex()[:12]}, is not in {self.root}"
            ) from None
        target = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            is_shared = entry.size > SMALL_BYTES and self._can_clone and trees.clone(source, target)
            if (_digest(source) if is_shared else _copy(source, target)) != entry.digest:
                raise SnapshotDamaged(
                    f"the content of {entry.path!r}, {entry.digest.hex()[:12]}, is damaged in {self.root}"
                )
            os.fchmod(target, entry.mode)
            os.utime(target, ns=(entry.mtime_ns, entry.mtime_ns))
        finally:
            os.close(source)
            os.close(target)

    def _named(self, digest: bytes) -> Path:
        path = self.path(digest)
        path.parent.mkdir(exist_ok=True)
        return path


def write(part: Path, data: bytes, path: Path) -> None:
    """The file is there whole, or not at all."""
    target = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o444)
    try:
        trees.write_all(target, data)
    finally:
        os.close(target)
    os.rename(part, path)


def _digest(source: int, bytes_max: int = sys.maxsize) -> bytes:
    os.lseek(source, 0, os.SEEK_SET)
    digest = hashlib.sha256()
    for chunk in trees.chunks(source, bytes_max):
        digest.update(chunk)
    return digest.digest()


def _copy(source: int, target: int, bytes_max: int = sys.maxsize) -> bytes:
    """What was copied, by digest."""
    digest = hashlib.sha256()
    for chunk in trees.chunks(source, bytes_max):
        digest.update(chunk)
        trees.write_sparsely(target, chunk)
    trees.end_sparsely(target)
    return digest.digest()

"""One pass over a working tree: every file's content into the store, every entry for the manifest."""

import os
import stat
import time
from pathlib import Path

from gyre.env.snapshots import trees
from gyre.env.snapshots.manifest import Entry, Limits
from gyre.env.snapshots.objects import Objects
from gyre.errors import Conflict, NotFound

TRIES_MAX = 3
"""A tree that is written while it is read is read again this often in all."""
RACY_NS = 1_000_000_000
"""A file that was changed less than this before it was read may change again without its times telling (their grain is some milliseconds, and a
network file system's clock another one), so the next snapshot reads it again."""
LEFT_OUT_MAX = 100
LENT = stat.S_ISUID | stat.S_ISGID
"""Of a file's mode: what lends its owner's rights to whoever runs it. Restored it belongs to whoever restores it, who is not who made it."""
_Signature = tuple[int, int, int, int, int]


class TreeChanged(Conflict):
    """The tree was written while it was read, again and again. Take snapshots between steps."""

    code = "tree_changed"


class Seen(dict[bytes, tuple[_Signature, int, bytes]]):
    """What the last snapshot of one tree read: path → (signature, when, digest). Files with the same signature are not read again."""


class Reading:
    """What one pass found."""

    def __init__(self, objects: Objects, limits: Limits, seen: Seen, part: Path) -> None:
        """`part` is where contents are written before they have their names."""
        self._objects, self._limits, self._before, self._part = objects, limits, seen, part
        self.entries: list[Entry] = []
        self.bytes = 0
        self.bytes_written = 0
        self.left_out: list[str] = []
        """Sockets, pipes and devices: they are nothing without their processes. At most LEFT_OUT_MAX are named."""
        self.seen = Seen()
        self._found = 0
        self._statuses: dict[bytes, tuple[int, ...]] = {}

    def read(self, tree: Path) -> None:
        """Raises TooLarge, TreeChanged, OSError with one of trees.CHANGED."""
        for found in trees.walk(tree, self._check):
            self._statuses[found.path] = (found.status.st_mode, *_signature(found.status))
            self._take_in(found)

    def check_unchanged(self, tree: Path) -> None:
        """Everything is still what was read: between the end of `read` and now there was a moment at which all of it stood so at once. Raises
        TreeChanged, and as `read`."""
        left = dict(self._statuses)
        for found in trees.walk(tree, lambda _path, _depth: None):
            if left.pop(found.path, None) != (found.status.st_mode, *_signature(found.status)):
                raise TreeChanged(os.fsdecode(found.path))
        if left:
            raise TreeChanged(os.fsdecode(next(iter(left))))

    def _check(self, path: bytes, depth: int) -> None:
        self._found += 1
        self._limits.check(path, depth, self._found, self.bytes)

    def _take_in(self, found: trees.Found) -> None:
        status = found.status
        mode = stat.S_IMODE(status.st_mode)
        if stat.S_ISDIR(status.st_mode):
            self.entries.append(Entry(found.path, "d", mode))
        elif stat.S_ISLNK(status.st_mode):
            self.entries.append(Entry(found.path, "l", target=found.target()))
        elif stat.S_ISREG(status.st_mode):
            self.bytes += status.st_size
            self._limits.check(found.path, 0, 0, self.bytes)
            self.entries.append(
                Entry(found.path, "f", mode & ~LENT, self._file(found), status.st_size, status.st_mtime_ns)
            )
        elif len(self.left_out) < LEFT_OUT_MAX:
            self.left_out.append(os.fsdecode(found.path))

    def _file(self, found: trees.Found) -> bytes:
        """The digest of its content, which is in the store then."""
        signature, size = _signature(found.status), found.status.st_size
        if (known := self._before.get(found.path)) is not None:
            before, read_ns, digest = known
            if before == signature and signature[-1] + RACY_NS < read_ns and self._objects.has(digest, size):
                self.seen[found.path] = known
                return digest
        source, read_ns = found.open(), time.time_ns()
        try:
            # What was opened must be what was looked at, and still be it when it has been read.
            if _signature(os.fstat(source)) != signature:
                raise TreeChanged(os.fsdecode(found.path))
            digest, written = self._objects.keep(source, size, self._part)
            if _signature(os.fstat(source)) != signature:
                raise TreeChanged(os.fsdecode(found.path))
        finally:
            os.close(source)
        self.bytes_written += written
        self.seen[found.path] = (signature, read_ns, digest)
        return digest


def read_tree(
    tree: Path, objects: Objects, limits: Limits, seen: Seen, part: Path, is_at_once: bool = False
) -> Reading:
    """`is_at_once`: what was read stood so all at once, not only each file by itself; for a tree whose processes may be at work. Raises TooLarge,
    TreeChanged, NotFound, PermissionError."""
    for _ in range(TRIES_MAX):
        reading = Reading(objects, limits, seen, part)
        try:
            reading.read(tree)
            if is_at_once:
                reading.check_unchanged(tree)
            return reading
        except TreeChanged:
            continue
        except OSError as error:
            if error.errno not in trees.CHANGED:
                raise
            if not tree.is_dir() or tree.is_symlink():
                raise NotFound(f"{tree} is no folder to take a snapshot of") from None
    raise TreeChanged(f"{tree} was written while its snapshot was taken, {TRIES_MAX} times: take it between steps")


def _signature(status: os.stat_result) -> _Signature:
    """Changes with whatever is done to a file's content; the last is its time of change, which nobody can set."""
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns

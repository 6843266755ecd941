"""Trees on disk: read without following a link, written beside their place and put there in one step.

Reading goes from folder to folder by descriptor, so a folder that is exchanged for a link meanwhile is noticed and not followed. Writing happens in
a fresh folder of a random name that only this user can enter; the agent must not be able to write to the folder *around* its tree.
"""

import contextlib
import ctypes
import errno
import fcntl
import os
import secrets
import shutil
import stat
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from gyre.env.snapshots import mounts
from gyre.errors import InvalidInput

FICLONE = 0x40049409
"""linux/fs.h, _IOW(0x94, 9, int): share the source's blocks, copied only where one of the two is written later."""
CHUNK_BYTES = 1 << 20
_RENAME_EXCHANGE = 2
_AT_FDCWD = -100
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Not blocking: a pipe may have taken the file's place since it was looked at.
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
CHANGED = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ESTALE)
"""What opening something says that was there a moment ago and is another thing now."""


class Found:
    """Something in a tree, while its folder is open."""

    __slots__ = ("_folder", "_name", "path", "status")

    def __init__(self, path: bytes, folder: int, name: bytes, status: os.stat_result) -> None:
        self.path, self._folder, self._name, self.status = path, folder, name, status

    def open(self) -> int:
        """A descriptor of the file. Raises OSError with one of CHANGED where it is something else by now."""
        try:
            return os.open(self._name, _FILE, dir_fd=self._folder)
        except PermissionError as error:
            raise PermissionError(error.errno, error.strerror, os.fsdecode(self.path)) from None

    def target(self) -> bytes:
        return os.readlink(self._name, dir_fd=self._folder)


def walk(tree: Path, check: Callable[[bytes, int], None]) -> Iterator[Found]:
    """Everything in the tree, parents first; `check(path, depth)` may raise to stop. Raises NotADirectoryError."""
    root = os.open(tree, _FOLDER)
    try:
        yield Found(b"", root, b".", os.fstat(root))
        yield from _walk(root, b"", 1, check)
    finally:
        os.close(root)


def _walk(folder: int, prefix: bytes, depth: int, check: Callable[[bytes, int], None]) -> Iterator[Found]:
    for name in sorted(os.fsencode(name) for name in os.listdir(folder)):
        path = prefix + name
        check(path, depth)
        found = Found(path, folder, name, os.stat(name, dir_fd=folder, follow_symlinks=False))
        yield found
        if stat.S_ISDIR(found.status.st_mode):
            try:
                inner = os.open(name, _FOLDER, dir_fd=folder)
            except PermissionError as error:
                raise PermissionError(error.errno, error.strerror, os.fsdecode(path)) from None
            try:
                yield from _walk(inner, path + b"/", depth + 1, check)
            finally:
                os.close(inner)


def chunks(source: int, bytes_max: int = sys.maxsize) -> Iterator[bytes]:
    """To its end, or so far."""
    while bytes_max and (chunk := os.read(source, min(CHUNK_BYTES, bytes_max))):
        bytes_max -= len(chunk)
        yield chunk


def write_sparsely(target: int, data: bytes) -> None:
    """As `write_all`, with a hole where all is zero; `end_sparsely` when there is no more."""
    if data.count(0) == len(data):
        os.lseek(target, len(data), os.SEEK_CUR)
    else:
        write_all(target, data)


def end_sparsely(target: int) -> None:
    """A hole at the end belongs to the file, too."""
    os.ftruncate(target, os.lseek(target, 0, os.SEEK_CUR))


def write_all(target: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(target, view) :]


def clone(source: int, target: int) -> bool:
    """Whether the target now shares the source's blocks; False where the file system cannot (another one, or no copy-on-write)."""
    try:
        fcntl.ioctl(target, FICLONE, source)
        return True
    except OSError:
        return False


@contextlib.contextmanager
def replacing(into: Path) -> Iterator[Path]:
    """An empty folder beside `into` that takes its place when the block ends well: whoever looks sees the old tree or the new one.

    A process that dies meanwhile leaves the old tree and a folder that the next one here removes. Raises InvalidInput where `into` is
    something else than a folder, a place where a file system is mounted, or one around such a place."""
    mounts.refuse(into)
    if into.is_symlink() or (into.exists() and not into.is_dir()):
        raise InvalidInput(f"{into} is not a folder, so no snapshot can be restored in its place")
    prefix = f".{into.name}.restoring-"
    _sweep(into.parent, prefix)
    fresh = into.parent / (prefix + secrets.token_hex(6))
    fresh.mkdir(mode=0o700)
    # Held while we live: this is how `_sweep` of others knows.
    lock = os.open(fresh, _FOLDER)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield fresh
        _put(fresh, into)
    finally:
        os.close(lock)
        if fresh.exists():
            remove(fresh)


def _put(fresh: Path, into: Path) -> None:
    if not into.exists():
        os.rename(fresh, into)
        return
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.renameat2(_AT_FDCWD, os.fsencode(fresh), _AT_FDCWD, os.fsencode(into), _RENAME_EXCHANGE) != 0:
        _refuse_mount(into, ctypes.get_errno())
        # Two steps where the file system knows no exchange (NFS): a process that dies between them leaves no tree, and the next restore makes it.
        aside = fresh.with_name(fresh.name + "-old")
        os.rename(into, aside)
        os.rename(fresh, into)
        os.rename(aside, fresh)


def _refuse_mount(into: Path, code: int) -> None:
    if code == errno.EBUSY:
        raise InvalidInput(f"{into} is a mount point: give the environment a folder inside it as its workspace")
    if code not in (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP):
        raise OSError(code, os.strerror(code), str(into))


def _sweep(parent: Path, prefix: str) -> None:
    """Remove what processes that died left of their restoring."""
    for name in os.listdir(parent):
        if name.startswith(prefix):
            with contextlib.suppress(OSError):
                lock = os.open(parent / name, _FOLDER)
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    remove(parent / name)
                finally:
                    os.close(lock)


def remove(tree: Path) -> None:
    """The tree is gone, also where its folders may not be read or written. Nothing to remove is no error."""
    try:
        shutil.rmtree(tree)
    except FileNotFoundError:
        return
    except PermissionError:
        os.chmod(tree, 0o700)
        for folder, names, _ in os.walk(tree):
            for name in names:
                if not os.path.islink(path := os.path.join(folder, name)):
                    os.chmod(path, 0o700)
        shutil.rmtree(tree)

"""Folders that somebody hostile has filled: walked and removed at any depth, with any permissions, following no link.

Everything goes by descriptors, three at a time, and never by recursion: neither the longest path, nor the number of open files, nor Python's stack
bounds how deep it gets.
"""

import contextlib
import os
import stat
from collections.abc import Callable, Iterator

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
ENTRY_BYTES_MIN = 4096
"""What a file, link or folder takes at the least, for itself and its name: a million empty ones are no gift."""


def walk(
    root: str | os.PathLike, failed: Callable[[OSError], None] = lambda error: None
) -> Iterator[tuple[int, os.DirEntry[str], list[str]]]:
    """Everything below `root`, a folder before what is in it: (descriptor of the folder that holds it, entry, names of the folders down to there).

    All three are good until the next is asked for. A folder that was removed or moved by then is not entered; of one that cannot be read `failed`
    is told.
    Ends early where the tree is moved under its feet. Raises OSError where `root` is no folder that may be read.
    """
    here, names = os.open(root, FOLDER), list[str]()
    levels: list[list[str]] = [[]]
    above: list[tuple[int, int]] = []
    try:
        yield from _entries(here, names, levels[-1], failed)
        while levels:
            if not levels[-1]:
                levels.pop()
                if not above:
                    return
                here, left = os.open("..", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=here), here
                os.close(left)
                names.pop()
                if _identity(here) != above.pop():
                    return
                continue
            name = levels[-1].pop()
            try:
                below = os.open(name, FOLDER, dir_fd=here)
            except FileNotFoundError:
                continue
            except OSError as error:
                failed(error)
                continue
            above.append(_identity(here))
            here, left = below, here
            os.close(left)
            names.append(name)
            levels.append([])
            yield from _entries(here, names, levels[-1], failed)
    finally:
        os.close(here)


def _entries(
    folder: int, names: list[str], folders: list[str], failed: Callable[[OSError], None]
) -> Iterator[tuple[int, os.DirEntry[str], list[str]]]:
    """What is in it; the folders among that are added to `folders`."""
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                yield folder, entry, names
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.name)
    except OSError as error:
        failed(error)


def bytes_below(roots: list[str]) -> Iterator[int]:
    """The sum so far, of everything below, as the disk holds it; whoever asks on measures on."""
    total = 0
    for root in roots:
        with contextlib.suppress(OSError):
            for _, entry, _ in walk(root):
                with contextlib.suppress(OSError):
                    total += max(ENTRY_BYTES_MIN, entry.stat(follow_symlinks=False).st_blocks * 512)
                yield total


def permit(name: str | os.PathLike, folder: int | None = None) -> None:
    """Its owner may read it, and work in it where it is a folder. A link stays as it is, and so does what it leads to. Raises OSError."""
    held = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    try:
        mode = os.fstat(held).st_mode
        wanted = stat.S_IRWXU if stat.S_ISDIR(mode) else stat.S_IRUSR if stat.S_ISREG(mode) else 0
        if mode & wanted != wanted:
            os.chmod(f"/proc/self/fd/{held}", stat.S_IMODE(mode) | wanted)
    finally:
        os.close(held)


def remove(root: str | os.PathLike) -> None:
    """`root` and all below it. What the kernel will not let go of (a mount, a file marked as immutable) stays, and so do the folders around it."""
    with contextlib.suppress(OSError):
        permit(root)
        top = os.open(root, FOLDER)
        try:
            while _remove_level(top):
                pass
        finally:
            os.close(top)
        os.rmdir(root)


def _remove_level(top: int) -> bool:
    """Files are removed, folders replaced by the folders in them; whether that changed anything."""
    has_changed = False
    for name in os.listdir(top):
        with contextlib.suppress(OSError):
            if _unlinked(name, top):
                has_changed = True
                continue
            permit(name, top)
            folder = os.open(name, FOLDER, dir_fd=top)
            try:
                for child in os.listdir(folder):
                    with contextlib.suppress(OSError):
                        if not _unlinked(child, folder):
                            permit(child, folder)  # to be moved a folder must be writable
                            os.rename(child, os.urandom(16).hex(), src_dir_fd=folder, dst_dir_fd=top)
                        has_changed = True
            finally:
                os.close(folder)
            os.rmdir(name, dir_fd=top)
            has_changed = True
    return has_changed


def _unlinked(name: str, folder: int) -> bool:
    """False: it is a folder. Raises OSError."""
    try:
        os.unlink(name, dir_fd=folder)
    except IsADirectoryError:
        return False
    return True


def _identity(folder: int) -> tuple[int, int]:
    status = os.fstat(folder)
    return status.st_dev, status.st_ino

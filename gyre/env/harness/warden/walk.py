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

REMOVALS = 3
"""There are file systems that leave out names when others are removed while they are listed."""


def walk(
    root: str | os.PathLike,
    failed: Callable[[OSError], None] = lambda error: None,
    left: Callable[[str, int], None] = lambda name, holder: None,
) -> Iterator[tuple[int, os.DirEntry[str], list[str]]]:
    """Everything below `root`, a folder before what is in it: (descriptor of the folder that holds it, entry, names of the folders down to there).

    All three are good until the next is asked for. A folder that was removed or moved by then is not entered; of one that cannot be read `failed`
    is told, and `left` (its name, descriptor of the folder that holds it) when all that is in a folder has been seen.
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
                here, last = os.open("..", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=here), here
                os.close(last)
                if _identity(here) != above.pop():
                    return
                left(names.pop(), here)
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
            here, last = below, here
            os.close(last)
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


def forbidden(mode: int) -> int:
    """The rights that its owner lacks to read it, or to work in it where it is a folder."""
    wanted = stat.S_IRWXU if stat.S_ISDIR(mode) else stat.S_IRUSR if stat.S_ISREG(mode) else 0
    return wanted & ~mode


def permit(name: str | os.PathLike, folder: int | None = None) -> None:
    """Give its owner what is `forbidden`. A link stays as it is, and so does what it leads to. Raises OSError."""
    held = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    try:
        mode = os.fstat(held).st_mode
        if missing := forbidden(mode):
            os.chmod(f"/proc/self/fd/{held}", stat.S_IMODE(mode) | missing)
    finally:
        os.close(held)


def remove(root: str | os.PathLike) -> None:
    """`root` and all below it. What the kernel will not let go of (a mount, a file marked as immutable) stays, and so do the folders around it."""
    for _ in range(REMOVALS):
        with contextlib.suppress(OSError):
            permit(root)
            for holder, entry, _names in walk(root, left=_remove_folder):
                with contextlib.suppress(OSError):
                    if entry.is_dir(follow_symlinks=False):
                        permit(entry.name, holder)
                    else:
                        os.unlink(entry.name, dir_fd=holder)
            os.rmdir(root)
            return


def _remove_folder(name: str, holder: int) -> None:
    with contextlib.suppress(OSError):
        os.rmdir(name, dir_fd=holder)


def _identity(folder: int) -> tuple[int, int]:
    status = os.fstat(folder)
    return status.st_dev, status.st_ino

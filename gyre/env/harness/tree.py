"""What an agent left behind, as it is: made readable, copied, with files laid over it that it was never to see.

Whatever it left is judged. What stands in the way of that is left out and counted, so that nobody escapes judgement by what he leaves: folders that
may not be read or are nested without end, pipes that block whoever opens them, files larger than the disk. No link is followed.
"""

import contextlib
import errno
import os
import shutil
import stat
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from gyre.env.harness.warden import walk
from gyre.errors import InvalidInput

DEPTH_MAX = 100
PATH_BYTES_MAX = 2048
"""Folders in each other, and the path through them: more would break whoever walks them by recursion, or by paths of at most 4096 bytes."""
ENTRIES_MAX = 200_000
"""Of one tree. A few times a large repository with all that it needs."""
COPY_BYTES_MAX = 8 * 2**30
"""Of one tree, holes not counted: twice what an agent may have on disk."""
KERNELS = ("/dev/", "/proc/", "/sys/")
OURS = {errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EROFS}
"""Errors of this machine, which are no property of what is copied."""

LeftOut = Counter[str]
"""How many were left out by kind: special (pipes, sockets, devices, links to them), too_deep, unreadable, too_large; too_many, replaced (the folder
itself): 1."""


def settle(folder: Path) -> LeftOut:
    """Of a folder in which nothing runs any more: its owner may read all of it; special files go, with links to them, and what is too deep is moved
    out, beside it."""
    left_out = _made_folder(folder)
    for number, (holder, entry, names) in enumerate(walk.walk(folder, lambda _: left_out.update(["unreadable"]))):
        if number == ENTRIES_MAX:
            left_out["too_many"] = 1
            break
        with contextlib.suppress(
            OSError
        ):  # a folder is found to be unreadable when it is entered, a file when it is copied
            mode = entry.stat(follow_symlinks=False).st_mode
            if not _is_plain(mode) or (stat.S_ISLNK(mode) and _leads_astray(os.path.join(folder, *names, entry.name))):
                os.unlink(entry.name, dir_fd=holder)
                left_out["special"] += 1
                continue
            if walk.forbidden(mode):
                walk.permit(entry.name, holder)
            if len(names) >= DEPTH_MAX or len(os.fsencode("/".join([*names, entry.name]))) > PATH_BYTES_MAX:
                os.rename(entry.name, folder.parent / f"left-out-{os.urandom(16).hex()}", src_dir_fd=holder)
                left_out["too_deep"] += 1
    return left_out


def copy(source: Path, target: Path, bytes_max: int = COPY_BYTES_MAX) -> LeftOut:
    """Files (holes stay holes), folders and links; what cannot be copied is left out. `target` may exist, and be empty. Raises OSError for what is no
    fault of `source`: a full disk."""
    left_out, room = LeftOut(), bytes_max
    target.mkdir(exist_ok=True)
    for number, (holder, entry, names) in enumerate(walk.walk(source, lambda _: left_out.update(["unreadable"]))):
        if number == ENTRIES_MAX:
            left_out["too_many"] = 1
            break
        try:
            status = entry.stat(follow_symlinks=False)
            size = min(status.st_size, status.st_blocks * 512) if stat.S_ISREG(status.st_mode) else 0
            if not _is_plain(status.st_mode):
                left_out["special"] += 1
            elif size > room:
                left_out["too_large"] += 1
            else:
                _copy_one(holder, entry.name, status.st_mode, os.path.join(target, *names, entry.name))
                room -= size
        except OSError as error:
            if error.errno in OURS:
                raise
            left_out["too_deep" if error.errno == errno.ENAMETOOLONG else "unreadable"] += 1
    return left_out


def overlay(files: Path | Mapping[str, str], target: Path) -> None:
    """Put `files` (a folder, or path → text) over what is in `target`: what stands in the way goes, and no link is followed."""
    if isinstance(files, Mapping):
        for path, text in files.items():
            put(text, target, Path(path))
        return
    for folder, _, names in os.walk(files):
        for name in names:
            source = Path(folder) / name
            shutil.copy2(source, _place(target, source.relative_to(files)))


def put(text: str, target: Path, path: Path, mode: int = 0o666) -> None:
    """A file of its own at `path` below `target`: what stands in the way goes, no link is followed. Raises InvalidInput for a path that leads out."""
    made = os.open(_place(target, path), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    with open(made, "w") as file:
        file.write(text)


def _made_folder(folder: Path) -> LeftOut:
    """A folder it is, and may be read."""
    left_out = LeftOut()
    for path in (folder.parent, folder):
        with contextlib.suppress(OSError):
            walk.permit(path)
    if not folder.is_dir() or folder.is_symlink():
        folder.unlink(missing_ok=True)
        folder.mkdir()
        left_out["replaced"] = 1
    return left_out


def _is_plain(mode: int) -> bool:
    return stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode)


def _leads_astray(link: str) -> bool:
    """To a device or a pipe, or to what the kernel makes up as it is read: whoever reads it for a file may never come to its end."""
    if f"{os.path.realpath(link)}/".startswith(KERNELS):
        return True
    try:
        return not _is_plain(os.stat(link).st_mode)
    except OSError:  # it leads nowhere
        return False


def _copy_one(holder: int, name: str, mode: int, target: str) -> None:
    """The entry `name` of the folder `holder`."""
    if stat.S_ISLNK(mode):
        os.symlink(os.readlink(name, dir_fd=holder), target)
        return
    if stat.S_ISDIR(mode):
        os.mkdir(target)
        os.chmod(target, stat.S_IMODE(mode) & 0o777 | stat.S_IRWXU)
        return
    source = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=holder)
    try:
        status = os.fstat(source)
        made = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            _copy_data(source, made, status.st_size)
            os.fchmod(made, stat.S_IMODE(mode) & 0o777 | stat.S_IRUSR)
            os.utime(made, ns=(status.st_atime_ns, status.st_mtime_ns))
        finally:
            os.close(made)
    finally:
        os.close(source)


def _copy_data(source: int, target: int, size: int) -> None:
    os.ftruncate(target, size)
    at = 0
    while at < size:
        try:
            at = os.lseek(source, at, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:  # nothing but a hole up to the end
                return
            raise
        end = os.lseek(source, at, os.SEEK_HOLE)
        os.lseek(target, at, os.SEEK_SET)
        while at < end:
            at += os.sendfile(target, source, at, end - at) or end - at


def _place(target: Path, path: Path) -> Path:
    """Where `path` goes in `target`, with nothing there."""
    if path.is_absolute() or ".." in path.parts:
        raise InvalidInput(f"{path} leaves the folder")
    place = target
    for part in path.parts[:-1]:
        place /= part
        if place.is_symlink() or (place.exists() and not place.is_dir()):
            place.unlink()
        place.mkdir(exist_ok=True)
    place /= path.name
    if place.is_dir() and not place.is_symlink():
        walk.remove(place)
    place.unlink(missing_ok=True)
    return place

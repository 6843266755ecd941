"""Copies of what an agent left behind, with files laid over it that it was never to see. Links in it lead nowhere from here."""

import os
import shutil
import stat
from collections.abc import Mapping
from pathlib import Path

from gyre.errors import InvalidInput


def copy(source: Path, target: Path) -> None:
    """Files, folders and links as they are; pipes, sockets and devices are left out. `target` may exist, and be empty."""

    def special(folder: str, names: list[str]) -> list[str]:
        kinds = {name: stat.S_IFMT(os.lstat(os.path.join(folder, name)).st_mode) for name in names}
        return [name for name, kind in kinds.items() if kind not in (stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK)]

    shutil.copytree(source, target, symlinks=True, ignore=special, dirs_exist_ok=True)


def overlay(files: Path | Mapping[str, str], target: Path) -> None:
    """Put `files` (a folder, or path → text) over what is in `target`: what stands in the way goes, and no link is followed."""
    if isinstance(files, Mapping):
        for path, text in files.items():
            _place(target, Path(path)).write_text(text)
        return
    for folder, _, names in os.walk(files):
        for name in names:
            source = Path(folder) / name
            shutil.copy2(source, _place(target, source.relative_to(files)))


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
        shutil.rmtree(place)
    place.unlink(missing_ok=True)
    return place

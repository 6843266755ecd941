"""Copies of what an agent left behind, with files laid over it that it was never to see. Links in it lead nowhere from here."""

import os
import shutil
import stat
from pathlib import Path


def copy(source: Path, target: Path) -> None:
    """Files, folders and links as they are; pipes, sockets and devices are left out. `target` may exist, and be empty."""

    def special(folder: str, names: list[str]) -> list[str]:
        kinds = {name: stat.S_IFMT(os.lstat(os.path.join(folder, name)).st_mode) for name in names}
        return [name for name, kind in kinds.items() if kind not in (stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK)]

    shutil.copytree(source, target, symlinks=True, ignore=special, dirs_exist_ok=True)


def overlay(files: Path, target: Path) -> None:
    """Put `files` over what is in `target`: what stands in the way goes, and no link is followed."""
    for folder, _, names in os.walk(files):
        inside = Path(folder).relative_to(files)
        for depth in range(1, len(inside.parts) + 1):
            place = target.joinpath(*inside.parts[:depth])
            if place.is_symlink() or (place.exists() and not place.is_dir()):
                place.unlink()
            place.mkdir(exist_ok=True)
        for name in names:
            place = target / inside / name
            if place.is_dir() and not place.is_symlink():
                shutil.rmtree(place)
            place.unlink(missing_ok=True)
            shutil.copy2(Path(folder) / name, place)

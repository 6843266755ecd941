"""File systems that are mounted inside a tree: they are not part of it, and must not be touched when it is exchanged for another."""

import os
import re
from pathlib import Path

from gyre.errors import InvalidInput

TABLE = Path("/proc/self/mountinfo")
_ESCAPED = re.compile(rb"\\([0-7]{3})")


class MountedInside(InvalidInput):
    """A file system is mounted inside a working tree."""

    code = "mounted_inside"


def below(tree: Path, table: Path = TABLE) -> list[Path]:
    """Where something is mounted inside `tree`, not at it, as far as this process sees; nothing where there is no such table."""
    root = os.fsencode(os.path.realpath(tree)).rstrip(b"/") + b"/"
    try:
        lines = table.read_bytes().splitlines()
    except OSError:
        return []
    points = (_ESCAPED.sub(lambda octal: bytes([int(octal[1], 8)]), line.split(b" ")[4]) for line in lines if line)
    return sorted(Path(os.fsdecode(point)) for point in points if point.startswith(root))


def refuse(tree: Path) -> None:
    """Raises MountedInside."""
    if inside := below(tree):
        raise MountedInside(
            f"a file system is mounted at {inside[0]}, inside {tree}: what is mounted cannot go back with it; mount it beside the tree, or "
            "unmount it before"
        )

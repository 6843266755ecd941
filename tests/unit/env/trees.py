"""Trees for tests: built from a description, and described again from what is on disk by other means than the code under test."""

import os
import stat
from pathlib import Path

from hypothesis import strategies as st

Description = dict[bytes, tuple]
"""Path → ("d", mode), ("f", mode, content, mtime_ns) or ("l", target)."""

NAMES = st.binary(min_size=1, max_size=12).filter(
    lambda name: b"/" not in name and b"\0" not in name and name not in (b".", b"..")
)
FILES = st.tuples(
    st.just("f"), st.integers(0, 0o1777), st.binary(max_size=200), st.integers(0, 2**31 * 10**9).map(lambda ns: ns)
)
LINKS = st.tuples(
    st.just("l"), st.sampled_from([b"a", b"..", b"/etc/passwd", b"../../outside", b"\xff\xfe", b"missing/x"])
)


@st.composite
def descriptions(draw) -> Description:
    """Folders of any mode, files of any content and mode (but those of test_restored.py), links to anywhere; names are any bytes but `/` and 0."""
    folders = [b""]
    found: Description = {b"": ("d", draw(st.integers(0, 0o7777)))}
    for _ in range(draw(st.integers(0, 12))):
        parent, name = draw(st.sampled_from(folders)), draw(NAMES)
        path = parent + b"/" + name if parent else name
        if path in found:
            continue
        found[path] = draw(st.one_of(FILES, LINKS, st.tuples(st.just("d"), st.integers(0, 0o7777))))
        if found[path][0] == "d":
            folders.append(path)
    return found


def build(tree: Path, description: Description) -> None:
    root = os.fsencode(tree)
    for path, (kind, *rest) in sorted(description.items()):
        place = root + b"/" + path if path else root
        if kind == "d":
            os.makedirs(place, exist_ok=True)
        elif kind == "l":
            os.symlink(rest[0], place)
        else:
            with open(place, "wb") as file:
                file.write(rest[1])
            os.chmod(place, rest[0])
            os.utime(place, ns=(rest[2], rest[2]))
    for path, (kind, *rest) in sorted(description.items(), reverse=True):
        if kind == "d":
            os.chmod(root + b"/" + path if path else root, rest[0])


def describe(tree: Path) -> Description:
    root = os.fsencode(tree)
    found: Description = {b"": ("d", stat.S_IMODE(os.stat(root).st_mode))}
    for folder, folders, files in os.walk(root):
        for name in folders + files:
            place = os.path.join(folder, name)
            status = os.lstat(place)
            path, mode = os.path.relpath(place, root), stat.S_IMODE(status.st_mode)
            if stat.S_ISLNK(status.st_mode):
                found[path] = ("l", os.readlink(place))
            elif stat.S_ISDIR(status.st_mode):
                found[path] = ("d", mode)
            else:
                with open(place, "rb") as file:
                    found[path] = ("f", mode, file.read(), status.st_mtime_ns)
    return found

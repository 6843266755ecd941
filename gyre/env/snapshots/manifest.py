"""What a snapshot is made of: a listing for each folder, with an entry for each folder, file and symbolic link in it, sorted by name.

Names are bytes, as the kernel has them. A file's time of change is kept, because build tools compare times; a snapshot's digest therefore covers it.
Not kept: owners, extended attributes, times of folders and links; hard links come back as files of their own.
"""

import hashlib
from collections.abc import Callable
from typing import Literal

import msgspec

from gyre.errors import InvalidInput

MODE_MAX = 0o7777
DIGEST_BYTES = 32


class TooLarge(InvalidInput):
    """The tree is beyond a limit; the message says which, and how to raise it."""

    code = "too_large"


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds of one tree. An agent can write without end; its snapshot must not."""

    entries_max: int = 200_000
    """Files, folders and links together."""
    bytes_max: int = 8 * 2**30
    """Contents of all files."""
    depth_max: int = 100
    path_bytes_max: int = 3000
    """Below the kernel's 4096, so that a tree can be restored in a folder of another name."""

    def check(self, path: bytes, depth: int, entries: int, size_bytes: int) -> None:
        """Of a tree read as far as `path`. Raises TooLarge."""
        for name, value in (("entries_max", entries), ("bytes_max", size_bytes), ("depth_max", depth), ("path_bytes_max", len(path))):  # fmt: skip
            if value > (most := getattr(self, name)):
                raise TooLarge(
                    f"{path[-200:].decode(errors='replace')}: {value} is beyond the snapshot limit {name} = {most}"
                )


class Entry(msgspec.Struct, frozen=True, array_like=True):
    """One folder (`d`), file (`f`) or symbolic link (`l`)."""

    path: bytes
    """From the root, whose own is empty; in a folder's listing the name alone."""
    kind: Literal["d", "f", "l"]
    mode: int = 0
    """Permission bits with set-user-id, set-group-id and sticky; 0 of a link, which has none."""
    digest: bytes = b""
    """sha256 of the file's content, of the folder's listing."""
    size: int = 0
    mtime_ns: int = 0
    target: bytes = b""
    """Where the link points, kept as it is and never followed."""


class Root(msgspec.Struct, frozen=True, array_like=True):
    """A tree: the file that a snapshot's digest is of. Equal trees have equal ones, byte for byte."""

    mode: int
    digest: bytes
    """Of the root folder's listing."""
    version: int = 1


_ENTRIES = msgspec.msgpack.Decoder(list[Entry])
_ROOT = msgspec.msgpack.Decoder(Root)


def encode(entries: list[Entry]) -> tuple[bytes, str, dict[bytes, bytes]]:
    """(the tree's root, its digest in hexadecimal, every folder's listing by digest). `entries` are of one tree, with their paths, in any order.

    A listing names what is in one folder only, so a change writes those of the folders above it anew and no other."""
    inside: dict[bytes, list[Entry]] = {}
    listings: dict[bytes, bytes] = {}
    for entry in sorted(entries, key=lambda entry: entry.path, reverse=True):  # what is in a folder comes before it
        digest = entry.digest
        if entry.kind == "d":
            data = msgspec.msgpack.encode(inside.pop(entry.path, [])[::-1])
            listings[digest := hashlib.sha256(data).digest()] = data
        parent, _, name = entry.path.rpartition(b"/")
        if not entry.path:
            data = msgspec.msgpack.encode(Root(entry.mode, digest))
            return data, hashlib.sha256(data).hexdigest(), listings
        inside.setdefault(parent, []).append(msgspec.structs.replace(entry, path=name, digest=digest))
    raise InvalidInput("a tree has a root folder")


def decode(data: bytes, digest: str, listing: Callable[[bytes], bytes]) -> list[Entry]:
    """Entries of the tree, folders before what is in them, the root first; `listing` gives a listing by its digest.

    Raises InvalidInput for what is not the root of that digest, or names what no tree has, and whatever `listing` raises."""
    if (found := hashlib.sha256(data).hexdigest()) != digest:
        raise InvalidInput(f"snapshot {digest[:12]} is damaged: its digest is {found[:12]}")
    try:
        root = _ROOT.decode(data)
        entries, todo = [Entry(b"", "d", root.mode, root.digest)], [(b"", root.digest)]
        check(entries)
        while todo:
            prefix, folder = todo.pop()
            inner = _ENTRIES.decode(listing(folder))
            check(inner)
            for entry in inner:
                if not entry.path:
                    raise InvalidInput(f"a listing in {prefix!r} has an entry without a name")
                entries.append(msgspec.structs.replace(entry, path=prefix + entry.path))
                if entry.kind == "d":
                    todo.append((prefix + entry.path + b"/", entry.digest))
    except msgspec.DecodeError as error:
        raise InvalidInput(f"snapshot {digest[:12]} cannot be read: {error}") from error
    return entries


def check(listing: list[Entry]) -> None:
    """Raises InvalidInput. A name is one name, so nothing can be written outside of its folder or through a link."""
    previous = None
    for entry in listing:
        name = entry.path
        if previous is not None and name <= previous:
            raise InvalidInput(f"{name!r} stands twice, or out of order")
        previous = name
        if name in (b".", b"..") or b"/" in name or b"\0" in name:
            raise InvalidInput(f"{name!r} is no name of something in a folder")
        if not 0 <= entry.mode <= MODE_MAX or entry.size < 0:
            raise InvalidInput(f"{name!r} has mode {entry.mode:o} and {entry.size} bytes")
        if entry.kind in "df" and len(entry.digest) != DIGEST_BYTES:
            raise InvalidInput(f"{name!r} has a digest of {len(entry.digest)} bytes, not {DIGEST_BYTES}")
        if entry.kind == "l" and (not entry.target or b"\0" in entry.target):
            raise InvalidInput(f"{name!r} is a link to nowhere")

"""What a snapshot is made of: one entry for each folder, file and symbolic link, sorted by path.

Names are bytes, as the kernel has them. A file's time of change is kept, because build tools compare times; a snapshot's digest therefore covers it.
Not kept: owners, extended attributes, times of folders and links; hard links come back as files of their own.
"""

import hashlib
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
    """One folder (`d`), file (`f`) or symbolic link (`l`); the root is the folder with the empty path."""

    path: bytes
    kind: Literal["d", "f", "l"]
    mode: int = 0
    """Permission bits with set-user-id, set-group-id and sticky; 0 of a link, which has none."""
    digest: bytes = b""
    """sha256 of the file's content."""
    size: int = 0
    mtime_ns: int = 0
    target: bytes = b""
    """Where the link points, kept as it is and never followed."""


class Manifest(msgspec.Struct, frozen=True, array_like=True):
    """A tree. Equal trees have equal manifests, byte for byte."""

    entries: list[Entry]
    version: int = 1

    @property
    def files(self) -> list[Entry]:
        return [entry for entry in self.entries if entry.kind == "f"]


def encode(entries: list[Entry]) -> tuple[bytes, str]:
    """The manifest of these entries, in any order, and its digest in hexadecimal."""
    data = msgspec.msgpack.encode(Manifest(sorted(entries, key=lambda entry: entry.path)))
    return data, hashlib.sha256(data).hexdigest()


def decode(data: bytes, digest: str) -> Manifest:
    """Raises InvalidInput for what is not the manifest of that digest, or names what no tree has: a path that leaves it, a file below a link."""
    if (found := hashlib.sha256(data).hexdigest()) != digest:
        raise InvalidInput(f"the manifest of snapshot {digest[:12]} is damaged: its digest is {found[:12]}")
    try:
        manifest = msgspec.msgpack.decode(data, type=Manifest)
    except msgspec.DecodeError as error:
        raise InvalidInput(f"snapshot {digest[:12]} is no manifest: {error}") from error
    check(manifest)
    return manifest


def check(manifest: Manifest) -> None:
    """Raises InvalidInput. Every entry's parent is a folder that stands before it, so nothing can be written outside or through a link."""
    if manifest.version != 1:
        raise InvalidInput(f"manifest version {manifest.version}; this Gyre reads 1")
    if not manifest.entries or manifest.entries[0].path or manifest.entries[0].kind != "d":
        raise InvalidInput("a manifest begins with the root folder")
    folders, previous = {b""}, None
    for entry in manifest.entries:
        if previous is not None and entry.path <= previous:
            raise InvalidInput(f"{entry.path!r} stands twice, or out of order")
        previous = entry.path
        if entry.path:
            parent, _, name = entry.path.rpartition(b"/")
            if name in (b"", b".", b"..") or b"\0" in name or entry.path.startswith(b"/") or parent not in folders:
                raise InvalidInput(f"{entry.path!r} is no path inside a tree")
        if entry.kind == "d":
            folders.add(entry.path)
        _check_content(entry)


def _check_content(entry: Entry) -> None:
    if not 0 <= entry.mode <= MODE_MAX or entry.size < 0:
        raise InvalidInput(f"{entry.path!r} has mode {entry.mode:o} and {entry.size} bytes")
    if entry.kind == "f" and len(entry.digest) != DIGEST_BYTES:
        raise InvalidInput(f"{entry.path!r} has a digest of {len(entry.digest)} bytes, not {DIGEST_BYTES}")
    if entry.kind == "l" and (not entry.target or b"\0" in entry.target):
        raise InvalidInput(f"{entry.path!r} is a link to nowhere")

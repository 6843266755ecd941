"""Content-addressed store for payloads over the bus's limit: written once, referred to by digest."""

import contextlib
import hashlib
import os
import tempfile
from pathlib import Path

from gyre.errors import InvalidInput, NotFound


class BlobStore:
    """A directory of files named by the sha256 of their content. Writing the same content twice is one file."""

    def __init__(self, root: Path) -> None:
        self._root = root
        root.mkdir(parents=True, exist_ok=True)

    def put(self, data: bytes) -> str:
        """Store and return the digest (64 hexadecimal digits). Whole or not at all."""
        digest = hashlib.sha256(data).hexdigest()
        path = self._path(digest)
        if not path.exists():
            path.parent.mkdir(exist_ok=True)
            handle, temporary = tempfile.mkstemp(dir=path.parent)
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        return digest

    def get(self, digest: str) -> bytes:
        """Raises NotFound for an unknown digest, InvalidInput when the content no longer fits it."""
        path = self._path(digest)
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            raise NotFound(f"no blob {digest} in {self._root}") from None
        if hashlib.sha256(data).hexdigest() != digest:
            raise InvalidInput(f"blob {digest} in {self._root} is damaged")
        return data

    def clear(self) -> int:
        """Delete everything, also what a crash left half written; returns how many. Not while another process stores: it could be told of content
        that is about to go."""
        count = 0
        for path in self._root.glob("??/*"):
            with contextlib.suppress(FileNotFoundError):
                path.unlink()
                count += 1
        return count

    def _path(self, digest: str) -> Path:
        if len(digest) != 64 or not set(digest) <= set("0123456789abcdef"):
            raise InvalidInput(f"{digest!r} is no sha256 digest")
        return self._root / digest[:2] / digest[2:]

"""Files that hold a secret: each is whole or absent, whatever is killed or full meanwhile, and all that make one at once have the same.

made:  name.<chance> (mode 600) ── write, fsync ──▶ hard link to its name ──▶ fsync of the folder
read:  checked to be a secret at all, so that an empty or blank file opens nothing
"""

import os
import secrets
from collections.abc import Callable
from pathlib import Path

from gyre.errors import ConfigError, NotFound

BYTES_MIN = 32
"""All that we make are at least as long: 256 bits."""
DISTINCT_MIN = 8
"""Different bytes in it: blanks, or the zeros that a lost page leaves behind, have one. 32 random bytes have fewer once in 10³⁴ times."""


def new_key() -> bytes:
    """A key as text, 256 bits."""
    return secrets.token_urlsafe(BYTES_MIN).encode()


def keep(path: Path, make: Callable[[], bytes] = new_key, mode: int = 0o600) -> bytes:
    """What `path` holds; made where there is none. Raises ConfigError where it holds no secret, or cannot be made."""
    if not path.exists():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            _write(path, make(), mode)
        except OSError as error:
            raise ConfigError(f"{path} cannot be made: {error.strerror}; make room or rights for it") from error
    return read(path)


def read(path: Path) -> bytes:
    """The secret, byte by byte. Raises NotFound where there is none, ConfigError where the file holds something else."""
    try:
        data = path.read_bytes()
    except FileNotFoundError as error:
        raise NotFound(f"{path} is missing: it is made when the run starts") from error
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}; it is for its owner only") from error
    if len(data) < BYTES_MIN or len(set(data)) < DISTINCT_MIN:
        raise ConfigError(
            f"{path} holds no key ({len(data)} bytes, {BYTES_MIN} or more are needed): stop the run, remove the file and start again; it is made anew"
        )
    return data


def _write(path: Path, data: bytes, mode: int) -> None:
    made = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(made, path)
        except FileExistsError:  # another process was first: its key is everybody's
            return
    finally:
        made.unlink()
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)

"""Snapshots of the fold, so that a restart costs what happened lately and not what happened ever.

    recovery = newest snapshot that fits + the facts after it        else: all facts

A snapshot is a cache and never the truth: one that is damaged, of another configuration, of another stream or made by other code is left
aside, with its reason in the log. "Other code" is any change to what makes a state out of facts (SOURCES), so no migration is ever needed.
100,000 unfinished executions and 200,000 tasks are 22 MB, which takes 0.15 s to encode on a busy core.
"""

import hashlib
import logging
import os
from pathlib import Path

import msgspec

import gyre.config
import gyre.ids
import gyre.records
import services.scheduler.core
from gyre.errors import InvalidInput
from services.scheduler.core import Settings, State
from services.scheduler.core.state import decode_state, encode_state

log = logging.getLogger(__name__)

KEPT = 2
"""The newest, and one before it should that be damaged."""
SOURCES = (services.scheduler.core, gyre.records, gyre.config, gyre.ids)
"""Whose source decides what a state is; packages with all their files."""
DIGEST_BYTES = 32


class _Header(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What must fit before the state is looked at."""

    code: str
    stream: str
    """When the stream of facts was created: sequences of another one mean nothing here."""
    sequence: int
    """The newest fact in the state."""
    state: bytes


class Snapshots:
    """Files `scheduler-<sequence>.snapshot` in one folder: sha256 of the rest, then a header with the state."""

    def __init__(self, folder: Path, stream: str, code: str = "") -> None:
        """`code` identifies what makes states out of facts; by default it is the sources' own digest."""
        self._folder = folder
        self._stream = stream
        self._code = code or code_digest()

    def save(self, state: State, sequence: int) -> bytes:
        """The state as it is at `sequence`, ready for `write`; takes the state as it is now."""
        return msgspec.msgpack.encode(_Header(self._code, self._stream, sequence, encode_state(state)))

    def write(self, data: bytes, sequence: int) -> None:
        """Whole or not at all; the oldest go. Raises OSError."""
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / f"scheduler-{sequence:020d}.snapshot"
        temporary = path.with_suffix(".new")
        with temporary.open("wb") as file:
            file.write(hashlib.sha256(data).digest() + data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        for old in self._paths()[KEPT:]:
            old.unlink(missing_ok=True)

    def newest(self, settings: Settings, last_sequence: int) -> tuple[State, int]:
        """The newest state that fits, with its sequence; an empty one at 0 when none does. `last_sequence` is the stream's."""
        for path in self._paths():
            try:
                state, sequence = self._read(path)
                if state.settings != settings:
                    raise InvalidInput("it is of another configuration")
                if sequence > last_sequence:
                    raise InvalidInput(f"it is at fact {sequence}, the stream ends at {last_sequence}")
            except (OSError, InvalidInput, msgspec.MsgspecError) as error:
                log.warning("snapshot %s is not used: %s", path.name, error)
                continue
            return state, sequence
        return State(settings), 0

    def _read(self, path: Path) -> tuple[State, int]:
        """Raises OSError, InvalidInput, msgspec.MsgspecError."""
        stored = path.read_bytes()
        digest, data = stored[:DIGEST_BYTES], stored[DIGEST_BYTES:]
        if hashlib.sha256(data).digest() != digest:
            raise InvalidInput("it is damaged")
        header = msgspec.msgpack.decode(data, type=_Header)
        if header.code != self._code:
            raise InvalidInput("it was made by another version of the code")
        if header.stream != self._stream:
            raise InvalidInput("it is of another stream of facts")
        return decode_state(header.state), header.sequence

    def _paths(self) -> list[Path]:
        """Newest first."""
        return sorted(self._folder.glob("scheduler-*.snapshot"), reverse=True)


def code_digest() -> str:
    """Of every source file that decides what a state is."""
    digest = hashlib.sha256()
    for module in SOURCES:
        root = Path(module.__file__)
        for path in sorted(root.parent.rglob("*.py")) if root.name == "__init__.py" else [root]:
            digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()

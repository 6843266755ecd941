"""Snapshots of a fold, so that a restart costs what happened lately and not what happened ever.

    recovery = newest snapshot that fits + the facts after it        else: all facts

A snapshot is a cache and never the truth: one that is damaged, of another configuration, of another stream or made by other code is left aside, with
its reason in the log. "Other code" is any change to what makes a state out of facts (`sources`), so no migration is ever needed.
"""

import asyncio
import hashlib
import logging
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from types import ModuleType
from typing import TypeVar

import msgspec

from gyre.clock import Clock
from gyre.errors import InvalidInput

log = logging.getLogger(__name__)

S = TypeVar("S")

KEPT = 2
"""The newest, and one before it should that be damaged."""
DIGEST_BYTES = 32
LOOK_S = 0.5
EVERY_S = 300.0
"""A quiet run is snapshot this often, so that a restart hours later does not begin where it was busy last."""
SHARE_MAX = 0.02
"""Of a process's time that taking snapshots may cost: the next waits 1/SHARE_MAX times as long as the last one took."""


class _Header(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What must fit before the state is looked at."""

    code: str
    stream: str
    """When the stream of facts was created: sequences of another one mean nothing here."""
    sequence: int
    """The newest fact in the state."""
    state: bytes


class Snapshots:
    """Files `<name>-<sequence>.snapshot` in one folder: sha256 of the rest, then a header with the state."""

    def __init__(self, folder: Path, name: str, stream: str, code: str) -> None:
        """`code` identifies what makes states out of facts (`code_digest`), and whatever else a state depends on."""
        self._folder = folder
        self._name = name
        self._stream = stream
        self._code = code

    def pack(self, state: bytes, sequence: int) -> bytes:
        """The encoded state as it is at `sequence`, ready for `write`."""
        return msgspec.msgpack.encode(_Header(self._code, self._stream, sequence, state))

    def write(self, data: bytes, sequence: int) -> None:
        """Whole or not at all; the oldest go. A full disk costs a longer restart and nothing else."""
        try:
            self._write(data, sequence)
        except OSError as error:
            log.warning("no snapshot at fact %d: %s", sequence, error)

    def _write(self, data: bytes, sequence: int) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / f"{self._name}-{sequence:020d}.snapshot"
        temporary = path.with_suffix(".new")
        with temporary.open("wb") as file:
            file.write(hashlib.sha256(data).digest() + data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        for old in self._paths()[KEPT:]:
            old.unlink(missing_ok=True)

    def newest(self, decode: Callable[[bytes], S], last_sequence: int) -> tuple[S, int] | None:
        """The newest state that fits, with its sequence; `last_sequence` is the stream's. `decode` raises InvalidInput (or msgspec's errors) for a
        state that does not fit. For a process's start: what one that was killed had half written goes."""
        for half in self._folder.glob(f"{self._name}-*.new"):
            half.unlink(missing_ok=True)
        for path in self._paths():
            try:
                return self._read(path, decode, last_sequence)
            except (OSError, InvalidInput, msgspec.MsgspecError) as error:
                log.warning("snapshot %s is not used: %s", path.name, error)
        return None

    def _read(self, path: Path, decode: Callable[[bytes], S], last_sequence: int) -> tuple[S, int]:
        stored = path.read_bytes()
        digest, data = stored[:DIGEST_BYTES], stored[DIGEST_BYTES:]
        if hashlib.sha256(data).digest() != digest:
            raise InvalidInput("it is damaged")
        header = msgspec.msgpack.decode(data, type=_Header)
        if header.code != self._code:
            raise InvalidInput("it was made by another version of the code, or with another configuration")
        if header.stream != self._stream:
            raise InvalidInput("it is of another stream of facts")
        if header.sequence > last_sequence:
            raise InvalidInput(f"it is at fact {header.sequence}, the stream ends at {last_sequence}")
        return decode(header.state), header.sequence

    def _paths(self) -> list[Path]:
        """Newest first."""
        return sorted(self._folder.glob(f"{self._name}-*.snapshot"), reverse=True)


def code_digest(sources: Iterable[ModuleType]) -> str:
    """Of every source file that decides what a state is; packages with all their files."""
    digest = hashlib.sha256()
    for module in sources:
        root = Path(str(module.__file__))
        for path in sorted(root.parent.rglob("*.py")) if root.name == "__init__.py" else [root]:
            digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


async def keep(
    snapshots: Snapshots, sequence: Callable[[], int], encode: Callable[[], bytes], every_facts: int, clock: Clock
) -> None:
    """For ever: every `every_facts` facts, and now and then. `encode` is called between two facts, the file is written beside them."""
    saved, saved_s, took_s = sequence(), clock.monotonic_s(), 0.0
    while True:
        await asyncio.sleep(LOOK_S)
        new, since_s = sequence() - saved, clock.monotonic_s() - saved_s
        if new <= 0 or (new < every_facts and since_s < EVERY_S) or since_s < took_s / SHARE_MAX:
            continue
        saved, saved_s = sequence(), clock.monotonic_s()
        data = snapshots.pack(encode(), saved)
        took_s = clock.monotonic_s() - saved_s
        await asyncio.to_thread(snapshots.write, data, saved)

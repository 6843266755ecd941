"""An append-only file of entries, one a line: `CRC32 JSON`.

A line is written by one call and is there whole or is the last one, so that a process may be killed at any moment; the torn end is cut off when the
file is opened again. One process at a time has it open. Nothing is written that was not redacted: every entry goes through `Redactor` here.
"""

import contextlib
import fcntl
import os
import time
import zlib
from pathlib import Path

import msgspec

from gyre.env.recording.entries import ARGUMENTS_CHARS_MAX, Asked, Called, Checkpoint, Entry, Over, Reply
from gyre.env.recording.redaction import Redactor
from gyre.errors import Conflict, InvalidInput

_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(Entry)


class RecordDamaged(InvalidInput):
    """A line in the middle of the file is not what was written."""

    code = "record_damaged"


class Tape:
    """Methods block, for a write each."""

    def __init__(self, path: Path, redactor: Redactor, sync: bool = True) -> None:
        """`sync`: calls to the outside and checkpoints also survive a loss of power. Raises Conflict where it is open elsewhere, RecordDamaged."""
        self.redactor, self._sync, self._path, self._file = redactor, sync, path, -1
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = _locked(path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
        try:
            self.entries, self._length = _read(path)
            os.ftruncate(self._file, self._length)
        except BaseException:
            self.close()
            raise

    def append(self, entry: Entry) -> None:
        """Redacted. Raises OSError; then the file is as it was before."""
        entry = _redacted(entry, self.redactor)
        data = _ENCODER.encode(entry)
        line = b"%08x %s\n" % (zlib.crc32(data), data)
        try:
            if os.write(self._file, line) != len(line):
                raise OSError("the disk is full")
            if self._sync and _must_last(entry):
                os.fdatasync(self._file)
        except OSError:
            os.ftruncate(self._file, self._length)
            raise
        self._length += len(line)

    def remove(self) -> None:
        """Nobody needs it any more; to be closed all the same."""
        self._path.unlink(missing_ok=True)

    def close(self) -> None:
        """Repeats change nothing."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def __del__(self) -> None:
        """Who was cancelled while a thread opened it never had it, and it must not stay locked for that."""
        self.close()


def drop(path: Path, age_s_max: float) -> None:
    """Away with a file that nobody has open, and to which nothing was added for longer."""
    with contextlib.suppress(FileNotFoundError, Conflict):
        file = _locked(path, os.O_RDWR)
        try:
            if time.time() - os.fstat(file).st_mtime > age_s_max:
                path.unlink()
        finally:
            os.close(file)


def _locked(path: Path, how: int) -> int:
    """Raises Conflict."""
    while True:
        file = os.open(path, how | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_at(path, file):
                return file
        except BlockingIOError:
            os.close(file)
            raise Conflict(f"{path} is open in another process: an older attempt still runs") from None
        except OSError:
            os.close(file)
            raise
        os.close(file)  # removed by whoever had it open when we came: what is written to it is nowhere


def _is_at(path: Path, file: int) -> bool:
    with contextlib.suppress(FileNotFoundError):
        return os.path.samestat(os.stat(path), os.fstat(file))
    return False


def _read(path: Path) -> tuple[list[Entry], int]:
    """(entries, bytes that hold them)."""
    data = path.read_bytes()
    entries: list[Entry] = []
    at = 0
    while (end := data.find(b"\n", at)) >= 0:
        line = data[at:end]
        try:
            if int(line[:8], 16) != zlib.crc32(line[9:]):
                raise ValueError("its checksum is another one")
            entries.append(_DECODER.decode(line[9:]))
        except (ValueError, msgspec.DecodeError) as error:
            if end + 1 == len(data):  # the last one: torn by a loss of power
                break
            raise RecordDamaged(f"{path}: line {len(entries) + 1} is damaged: {error}") from error
        at = end + 1
    return entries, at


def _must_last(entry: Entry) -> bool:
    return isinstance(entry, Asked | Checkpoint | Over) or (isinstance(entry, Called) and entry.is_outside)


def _redacted(entry: Entry, redactor: Redactor) -> Entry:
    replace = msgspec.structs.replace
    if isinstance(entry, Called | Asked):
        arguments = redactor.text(redactor.document(entry.arguments)[:ARGUMENTS_CHARS_MAX])
        entry = replace(entry, name=redactor.text(entry.name), arguments=arguments)
    if isinstance(entry, Called):
        return replace(entry, content=redactor.document(entry.content))
    if isinstance(entry, Reply):
        message = redactor.value(entry.message)
        return replace(entry, message=message, is_masked=entry.is_masked or message != entry.message)
    if isinstance(entry, Checkpoint):
        return replace(entry, messages=redactor.document(entry.messages))
    return entry

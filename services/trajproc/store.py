"""Trees of a run on disk, so that they survive their executions (B3).

    tokens.i32     int32, chunks of tokens, each shared one once            appended to
    logprobs.f32   float32, of sampled tokens, tree after tree             appended to
    trees.log      frames, one a tree: header, sample id, StoredTree        appended to, last of the three

A tree is there when its frame is whole. Whoever opens the folder to write finds a tail that a crash tore, by its length or its checksum, and cuts
all three files back to the last whole frame; readers pass over it. Nothing is forced to disk: trees are evidence, not state, and a machine that
loses its newest ones loses no training. One process writes; any may read.
"""

import struct
import zlib
from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from gyre.errors import InvalidInput, NotFound
from services.trajproc.core.tree import Tree
from services.trajproc.core.tree.stored import (
    DIGEST_BYTES,
    SHAPE_FIELDS,
    MappedTree,
    StoredTree,
    call_of,
    chunks,
    joined,
    logprobs_of,
    version_runs,
)
from services.trajproc.core.tree.tree import LOGPROB, TOKEN

HEADER = struct.Struct("<4sHII")
"""Magic, length of the sample id, length of the payload, CRC-32 of id and payload."""
MAGIC = b"GYT1"
SHARED_CHUNKS_MAX = 1 << 16
"""Chunks that can be found again: the most recently used, about 10 MB of memory and 64 MB of tokens. What comes back later is stored again."""
FRAMES_REMEMBERED = 1024
"""Newest frames whose chunks a restart looks at."""

_encoder, _decoder = msgspec.msgpack.Encoder(), msgspec.msgpack.Decoder(StoredTree)


class Frame(NamedTuple):
    sample_id: str
    offset: int
    """Of the payload, in the file."""
    size: int
    crc: int


class TreeStore:
    """The writer. Not for several threads at once; OSError leaves it as it was before the tree, as far as the disk lets it."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._chunks: OrderedDict[bytes, int] = OrderedDict()
        self._log = self._tokens = self._logprobs = None
        self._open()

    def put(self, sample_id: str, tree: Tree, leaves: Sequence[int]) -> None:
        """Append a sample's tree with the leaves of its chosen paths. A sample that comes again has the newer tree."""
        if self._log is None:
            self._open()
        try:
            self._put(sample_id, tree, leaves)
        except BaseException:
            self.close()  # the next one finds the torn tail and cuts it off
            raise

    def close(self) -> None:
        for file in (self._tokens, self._logprobs, self._log):
            if file is not None:
                file.close()
        self._log = self._tokens = self._logprobs = None

    def _put(self, sample_id: str, tree: Tree, leaves: Sequence[int]) -> None:
        offsets, lengths, new, brought = [], [], [], []
        begin = end = self._tokens.tell() // TOKEN.itemsize
        for tokens, name in chunks(tree):
            found = self._chunks.get(name) if name else None
            if found is None:
                found, end = end, end + len(tokens)
                new.append(tokens)
                if name:
                    brought.append((name, found))
                    self._remember(name, found)
            else:
                self._chunks.move_to_end(name)
            offsets.append(found)
            lengths.append(len(tokens))
        token_bytes, logprob_bytes = b"".join(tokens.data for tokens in new), logprobs_of(tree).tobytes()
        logprobs_offset = self._logprobs.tell() // LOGPROB.itemsize
        piece_offsets, piece_lengths = joined(offsets, lengths)
        values, runs = version_runs(tree)
        payload = _encoder.encode(StoredTree(
            sample_id=sample_id, calls=[call_of(call) for call in tree.calls],
            set_aside={name: (problem.reason, problem.detail) for name, problem in tree.set_aside.items()},
            leaves=[int(leaf) for leaf in leaves], shape={name: getattr(tree, name).tobytes() for name in SHAPE_FIELDS},
            piece_offsets=piece_offsets.tobytes(), piece_lengths=piece_lengths.tobytes(), logprobs_offset=logprobs_offset,
            version_values=values.tobytes(), version_lengths=runs.tobytes(), digests=b"".join(name for name, _ in brought),
            digest_offsets=np.array([offset for _, offset in brought], "<i8").tobytes(), tokens_begin=begin, tokens_end=end,
            logprobs_end=logprobs_offset + len(logprob_bytes) // LOGPROB.itemsize,
            checksum=zlib.crc32(logprob_bytes, zlib.crc32(token_bytes)),
        ))  # fmt: skip
        name = sample_id.encode()
        for file, data in (
            (self._tokens, token_bytes), (self._logprobs, logprob_bytes),
            (self._log, HEADER.pack(MAGIC, len(name), len(payload), zlib.crc32(payload, zlib.crc32(name))) + name + payload),
        ):  # fmt: skip
            file.write(data)
            file.flush()

    def _remember(self, name: bytes, offset: int) -> None:
        self._chunks[name] = offset
        if len(self._chunks) > SHARED_CHUNKS_MAX:
            self._chunks.popitem(last=False)

    def _open(self) -> None:
        """Find the last whole tree, cut off what comes after it, and learn the newest chunks."""
        self._log, self._tokens, self._logprobs = (
            _appendable(self._folder / name) for name in ("trees.log", "tokens.i32", "logprobs.f32")
        )
        ends = {self._tokens: 0, self._logprobs: 0, self._log: 0}
        newest = deque(frames(self._log), maxlen=FRAMES_REMEMBERED)
        while newest and not self._is_whole(newest[-1]):
            newest.pop()
        self._chunks.clear()
        for frame in newest:
            stored = _read(self._log, frame)
            names = [stored.digests[at : at + DIGEST_BYTES] for at in range(0, len(stored.digests), DIGEST_BYTES)]
            for name, offset in zip(names, np.frombuffer(stored.digest_offsets, "<i8").tolist(), strict=True):
                self._remember(name, offset)
            ends = {
                self._tokens: stored.tokens_end * TOKEN.itemsize, self._logprobs: stored.logprobs_end * LOGPROB.itemsize,
                self._log: frame.offset + frame.size,
            }  # fmt: skip
        for file, end in ends.items():
            file.truncate(end)
            file.seek(end)

    def _is_whole(self, frame: Frame) -> bool:
        """Whether frame, tokens and log-probabilities of the tree are as they were written; only the newest may not be."""
        try:
            stored = _read(self._log, frame)
        except InvalidInput:
            return False
        crc = 0
        for file, size, end, begin in (
            (self._tokens, TOKEN.itemsize, stored.tokens_end, stored.tokens_begin),
            (self._logprobs, LOGPROB.itemsize, stored.logprobs_end, stored.logprobs_offset),
        ):
            file.seek(begin * size)
            data = file.read((end - begin) * size)
            crc = zlib.crc32(data, crc)
        return crc == stored.checksum


class TreeReader:
    """Trees of a run, by sample; also while they are written."""

    def __init__(self, folder: Path) -> None:
        """Raises NotFound where no tree was ever stored."""
        self._folder = folder
        try:
            self._log = (folder / "trees.log").open("rb")
        except FileNotFoundError:
            raise NotFound(f"no trees are kept in {folder} (trajproc.keep_trees)") from None

    def samples(self) -> list[str]:
        """Names of the samples, each once, in the order in which their trees were first stored."""
        return list(dict.fromkeys(frame.sample_id for frame in frames(self._log)))

    def get(self, sample_id: str) -> MappedTree:
        """Raises NotFound for a sample without a tree, InvalidInput where its frame is damaged."""
        found = None
        for frame in frames(self._log):
            found = frame if frame.sample_id == sample_id else found
        if found is None:
            raise NotFound(f"no tree of {sample_id} in {self._folder}")
        return self._tree(found)

    def each(self, names: Iterable[str]) -> Iterator[tuple[str, MappedTree | None]]:
        """The trees of many samples, None for one without; the log is read through once for all of them."""
        newest = {frame.sample_id: frame for frame in frames(self._log)}
        for name in names:
            try:
                yield name, self._tree(newest[name]) if name in newest else None
            except InvalidInput:
                yield name, None

    def _tree(self, frame: Frame) -> MappedTree:
        sample_id, stored = frame.sample_id, _read(self._log, frame)
        tokens, logprobs = self._map("tokens.i32", TOKEN), self._map("logprobs.f32", LOGPROB)
        if len(tokens) < stored.tokens_end or len(logprobs) < stored.logprobs_end:
            raise InvalidInput(f"{self._folder} has lost tokens of {sample_id}")
        return MappedTree(stored, tokens, logprobs)

    def close(self) -> None:
        self._log.close()

    def _map(self, name: str, dtype: np.dtype) -> npt.NDArray:
        path = self._folder / name
        items = path.stat().st_size // dtype.itemsize
        return np.memmap(path, dtype, "r", shape=(items,)) if items else np.empty(0, dtype)


def frames(log: BinaryIO) -> Iterator[Frame]:
    """Frames that are there in full length, header by header; payloads are passed over."""
    size = log.seek(0, 2)
    at = 0
    while at + HEADER.size <= size:
        log.seek(at)
        magic, name_size, payload_size, crc = HEADER.unpack(log.read(HEADER.size))
        end = at + HEADER.size + name_size + payload_size
        if magic != MAGIC or end > size:
            return
        yield Frame(log.read(name_size).decode(), end - payload_size, payload_size, crc)
        at = end


def _read(log: BinaryIO, frame: Frame) -> StoredTree:
    log.seek(frame.offset)
    payload = log.read(frame.size)
    if zlib.crc32(payload, zlib.crc32(frame.sample_id.encode())) != frame.crc:
        raise InvalidInput(f"the tree of {frame.sample_id} is damaged")
    return _decoder.decode(payload)


def _appendable(path: Path) -> BinaryIO:
    path.touch()
    return path.open("r+b")

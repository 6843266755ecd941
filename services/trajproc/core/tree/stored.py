"""A tree as it is stored (B3): its shape and its calls in one small frame, its tokens as chunks that all trees of a run have in common.

    U  unique tokens, node after node     S  sampled ones among them     K  pieces of the token file that hold the U tokens, in order

Prompt tokens are cut where contexts begin to differ and at every CHUNK_TOKENS of depth, and each chunk is stored once: executions that begin with
the same system prompt share all of its chunks but the last. Sampled tokens are stored as they are, with their log-probabilities beside them;
versions, which hardly change, are stored as runs.
"""

import hashlib
from collections.abc import Iterator, Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from gyre.records import CallRecorded
from services.trajproc.core.tree.tree import LOGPROB, NOT_SAMPLED, ROOT, TOKEN, Shape, Tree

CHUNK_TOKENS = 256
SHARED_TOKENS_MIN = 32
"""Shorter chunks are not looked for: finding them would cost as much as they do."""
DIGEST_BYTES = 16

SHAPE_FIELDS = ("parents", "starts", "lengths", "owners", "lasts", "ends")


class StoredCall(msgspec.Struct, frozen=True, array_like=True):
    """What is kept of a call record beside its tokens."""

    call_id: str
    call_index: int
    role: str
    delivered: bool
    parent: str
    parent_tokens: int
    prompt_tokens: int
    output_tokens: int
    finish_reason: str


class StoredTree(msgspec.Struct, frozen=True, kw_only=True):
    """One frame of the store."""

    sample_id: str
    calls: list[StoredCall]
    set_aside: dict[str, tuple[str, str]]
    """Call → (reason, detail)."""
    leaves: list[int]
    """Leaf nodes of the chosen paths, in the order in which they were drawn."""
    shape: dict[str, bytes]
    """int32 arrays of Shape, by name."""
    piece_offsets: bytes
    """int64[K], where in the token file a piece begins, in tokens."""
    piece_lengths: bytes
    """int32[K]"""
    logprobs_offset: int
    """Where in the log-probability file the S of this tree begin, in items."""
    version_values: bytes
    """int32, one for each run of equal versions among the S."""
    version_lengths: bytes
    """int32"""
    digests: bytes
    """Of the shared chunks that this tree brought, DIGEST_BYTES each …"""
    digest_offsets: bytes
    """… and where they begin in the token file, int64."""
    tokens_begin: int
    """The tokens that this tree appended, in tokens of the file; and where its log-probabilities end, in items."""
    tokens_end: int
    logprobs_end: int
    checksum: int
    """CRC-32 of the tokens and log-probabilities that this tree appended."""


def chunks(tree: Tree) -> Iterator[tuple[npt.NDArray, bytes]]:
    """The tree's tokens in node order: (int32 tokens, digest); the digest is empty where a chunk is not shared."""
    for node in range(1, len(tree.parents)):
        tokens, start = tree.tokens(node), int(tree.starts[node])
        if tree.owners[node] != NOT_SAMPLED:
            yield tokens, b""
            continue
        done = 0
        while done < len(tokens):
            stop = min(len(tokens), done + CHUNK_TOKENS - (start + done) % CHUNK_TOKENS)
            chunk = tokens[done:stop]
            yield chunk, digest(chunk) if stop - done >= SHARED_TOKENS_MIN else b""
            done = stop


def digest(tokens: npt.NDArray) -> bytes:
    """Name of a chunk: its content, hence its length."""
    return hashlib.blake2b(np.ascontiguousarray(tokens).data, digest_size=DIGEST_BYTES).digest()


def logprobs_of(tree: Tree) -> npt.NDArray:
    """float32[S]"""
    sampled = np.flatnonzero(tree.owners != NOT_SAMPLED)
    return np.concatenate([np.empty(0, LOGPROB), *(tree.logprobs(node) for node in sampled)])


def version_runs(tree: Tree) -> tuple[npt.NDArray, npt.NDArray]:
    """Values and lengths of the runs of equal versions among the S."""
    sampled = np.flatnonzero(tree.owners != NOT_SAMPLED)
    versions = np.concatenate([np.empty(0, TOKEN), *(tree.versions(node) for node in sampled)])
    begins = np.flatnonzero(np.diff(versions, prepend=versions[:1] - 1)) if len(versions) else np.empty(0, np.int64)
    return versions[begins], np.diff(np.append(begins, len(versions))).astype(TOKEN)


def call_of(record: CallRecorded) -> StoredCall:
    return StoredCall(
        record.call_id, record.call_index, record.role, record.delivered, record.parent, record.parent_tokens,
        record.prompt_tokens, len(record.output_ids) // TOKEN.itemsize, record.finish_reason,
    )  # fmt: skip


def joined(offsets: Sequence[int], lengths: Sequence[int]) -> tuple[npt.NDArray, npt.NDArray]:
    """Pieces that follow each other in the file as they do in the tree are one piece: int64[K], int32[K]."""
    offset, length = np.array(offsets, np.int64), np.array(lengths, np.int64)
    begins = np.append(True, offset[1:] != (offset + length)[:-1])[: len(offset)]
    first = np.flatnonzero(begins)
    return offset[first], (np.add.reduceat(length, first) if len(first) else length).astype(TOKEN)


class MappedTree(Shape):
    """A stored tree over mapped files: a node's tokens are read when they are asked for."""

    def __init__(self, stored: StoredTree, tokens: npt.NDArray, logprobs: npt.NDArray) -> None:
        """`tokens`, `logprobs`: the whole files."""
        super().__init__(**{name: np.frombuffer(stored.shape[name], TOKEN) for name in SHAPE_FIELDS})
        self.stored, self.calls = stored, stored.calls
        self._tokens, self._logprobs = tokens, logprobs
        self._offsets = np.frombuffer(stored.piece_offsets, "<i8")
        self._piece_ends = np.cumsum(np.frombuffer(stored.piece_lengths, TOKEN), dtype=np.int64)
        self._before = np.cumsum(self.lengths, dtype=np.int64) - self.lengths  # of the U tokens, those before a node
        sampled = np.where(self.owners == NOT_SAMPLED, 0, self.lengths)
        self._sampled_before = np.cumsum(sampled, dtype=np.int64) - sampled
        self._versions = np.repeat(
            np.frombuffer(stored.version_values, TOKEN), np.frombuffer(stored.version_lengths, TOKEN)
        )

    def tokens(self, node: int) -> npt.NDArray:
        begin, stop = int(self._before[node]), int(self._before[node]) + int(self.lengths[node])
        parts = [np.empty(0, TOKEN)]
        piece = int(np.searchsorted(self._piece_ends, begin, "right"))
        while begin < stop:
            end = int(self._piece_ends[piece])
            taken = min(stop, end) - begin
            # the piece's last token stands at offset + length − 1, and `end` is one past it
            length = end - (int(self._piece_ends[piece - 1]) if piece else 0)
            offset = int(self._offsets[piece]) + length - (end - begin)
            parts.append(self._tokens[offset : offset + taken])
            begin, piece = begin + taken, piece + 1
        return np.concatenate(parts) if len(parts) > 2 else parts[-1]

    def logprobs(self, node: int) -> npt.NDArray:
        """float32[length], zeros where the policy did not sample."""
        if self.owners[node] == NOT_SAMPLED:
            return np.zeros(self.lengths[node], LOGPROB)
        begin = self.stored.logprobs_offset + int(self._sampled_before[node])
        return self._logprobs[begin : begin + int(self.lengths[node])]

    def versions(self, node: int) -> npt.NDArray:
        """int32[length], −1 where the policy did not sample."""
        if self.owners[node] == NOT_SAMPLED:
            return np.full(self.lengths[node], NOT_SAMPLED, TOKEN)
        begin = int(self._sampled_before[node])
        return self._versions[begin : begin + int(self.lengths[node])]

    @property
    def chosen(self) -> set[int]:
        """Nodes of the chosen paths."""
        found: set[int] = {ROOT}
        for leaf in self.stored.leaves:
            node = leaf
            while node not in found:
                found.add(node)
                node = int(self.parents[node])
        return found - {ROOT}

"""The session's memory of tokens: which token ids a conversation's prefix *was*, never what it would be (B1, B3).

Two indexes over the same call records:

    by conversation   digest of everything up to and including a reply ─▶ the record that sampled the reply
    by tokens         each record owns the tokens its parent's context did not have; where two contexts part, the
                      later one hangs from the earlier at exactly that token

A prompt is then (recorded tokens of the deepest known reply) + (rendering of the messages after it), and its record holds
only what no earlier record holds. Memory and time are linear in new tokens; both indexes are rebuilt from the records.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Ids = npt.NDArray[np.int32]

SPARE = 16
"""A strand that grows gets a sixteenth more room than it needs: it is copied after so much more, and no more of it lies idle."""


class Strand:
    """Tokens of contexts that each go on where the one before ends, in one piece: the first of them goes on from another strand, or from nothing."""

    __slots__ = ("_buffer", "_size", "parent", "start")

    def __init__(self, parent: "Context | None", start: int) -> None:
        self.parent = parent
        """Its first `start` tokens stand before the strand's own."""
        self.start = start
        self._buffer, self._size = np.empty(0, np.int32), 0

    @property
    def end(self) -> int:
        return self.start + self._size

    def add(self, ids: Ids) -> None:
        size = self._size + len(ids)
        if size > len(self._buffer):
            grown = np.empty(size + size // SPARE if self._size else size, np.int32)
            grown[: self._size] = self._buffer[: self._size]
            self._buffer = grown
        self._buffer[self._size : size] = ids
        self._size = size

    def between(self, start: int, end: int) -> Ids:
        """A view, of no use to who keeps it: the strand grows into another buffer."""
        return self._buffer[start - self.start : end - self.start]


class Context:
    """One record's context, prompt and output: the first `kept` tokens are its parent's, what follows is its own."""

    __slots__ = ("branches", "call_id", "kept", "length", "parent", "prompt_tokens", "strand")

    def __init__(self, call_id: str, parent: "Context | None", kept: int, own: Ids, prompt_tokens: int) -> None:
        self.call_id = call_id
        self.parent = parent
        self.kept = kept
        self.length = kept + len(own)
        self.prompt_tokens = prompt_tokens
        self.branches: dict[tuple[int, int], Context] = {}
        """(length of the common context, first token after it) → the context that goes on there."""
        goes_on = parent is not None and kept == parent.length == parent.strand.end
        self.strand = parent.strand if goes_on else Strand(parent, kept)  # type: ignore[union-attr]
        self.strand.add(own)

    @property
    def tail(self) -> Ids:
        """Its own tokens."""
        return self.strand.between(self.kept, self.length)

    def pieces(self, end: int | None = None) -> list[Ids]:
        """The context's tokens, or its first `end`, as views: one for each strand that they stand in."""
        pieces: list[Ids] = []
        strand, end = self.strand, self.length if end is None else end
        while end > 0:
            if end > strand.start:
                pieces.append(strand.between(strand.start, end))
            end = min(end, strand.start)
            if strand.parent is None:
                break
            strand = strand.parent.strand
        return pieces[::-1]

    def tokens(self) -> Ids:
        """int32[length]"""
        return np.concatenate([np.empty(0, np.int32), *self.pieces()])

    def last_token(self) -> int:
        return int(self.tail[-1])


class SessionTrie:
    """All contexts of one session."""

    def __init__(self) -> None:
        self._root = Context("", None, 0, np.empty(0, np.int32), 0)
        self._replies: dict[bytes, Context] = {}
        self._by_call: dict[str, Context] = {"": self._root}

    def __len__(self) -> int:
        return len(self._by_call) - 1

    def deepest(self, digests: Sequence[bytes]) -> tuple[int, Context | None]:
        """(number of messages, context) of the longest prefix that ends with a recorded reply; (0, None) when there is none.

        `digests[i]` is the digest of the first i messages (normal.prefix_digests)."""
        for count in range(len(digests) - 1, 0, -1):
            if (found := self._replies.get(digests[count])) is not None:
                return count, found
        return 0, None

    def place(self, prompt: Ids, known: Context | None = None) -> tuple[Context, int]:
        """Where a prompt belongs: (parent, how many of its tokens are the parent's). `known`: a context it begins with."""
        node = known or self._root
        matched = node.length
        while True:
            branch = self._branch(node, prompt, matched)
            if branch is None:
                return node, matched
            own = prompt[branch.kept : branch.length]
            same = branch.tail[: len(own)] == own
            node, matched = branch, branch.kept + (len(same) if same.all() else int(same.argmin()))

    def add(
        self, call_id: str, parent: Context, kept: int, delta: Ids, output: Ids, after_reply: Sequence[bytes]
    ) -> Context:
        """Take a record in. `after_reply`: digests that the conversation with its reply may have; none when the reply was never whole."""
        if call_id in self._by_call:
            return self._by_call[call_id]
        own = np.concatenate([delta, output])
        context = Context(call_id, parent, kept, own, kept + len(delta))
        self._by_call[call_id] = context
        if len(own):
            parent.branches.setdefault((kept, int(own[0])), context)
        self._replies.update(dict.fromkeys(after_reply, context))
        return context

    def context(self, call_id: str) -> Context | None:
        """The context of a recorded call (the empty one for an empty name)."""
        return self._by_call.get(call_id)

    @staticmethod
    def _branch(node: Context, prompt: Ids, matched: int) -> Context | None:
        return node.branches.get((matched, int(prompt[matched]))) if matched < len(prompt) else None

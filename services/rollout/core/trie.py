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


class Context:
    """One record's context, prompt and output: the first `kept` tokens are its parent's, `tail` is its own."""

    __slots__ = ("branches", "call_id", "kept", "length", "parent", "prompt_tokens", "tail")

    def __init__(self, call_id: str, parent: "Context | None", kept: int, tail: Ids, prompt_tokens: int) -> None:
        self.call_id = call_id
        self.parent = parent
        self.kept = kept
        self.tail = tail
        self.length = kept + len(tail)
        self.prompt_tokens = prompt_tokens
        self.branches: dict[tuple[int, int], Context] = {}
        """(length of the common context, first token after it) → the context that goes on there."""

    def pieces(self) -> list[Ids]:
        """The context's tokens, as views of what the contexts own that it consists of."""
        pieces: list[Ids] = []
        node: Context | None = self
        end = self.length
        while node is not None and end > 0:
            if end > node.kept:
                pieces.append(node.tail[: end - node.kept])
                end = node.kept
            node = node.parent
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
        context = Context(call_id, parent, kept, np.concatenate([delta, output]).astype(np.int32), kept + len(delta))
        self._by_call[call_id] = context
        if len(context.tail):
            parent.branches.setdefault((kept, int(context.tail[0])), context)
        self._replies.update(dict.fromkeys(after_reply, context))
        return context

    def context(self, call_id: str) -> Context | None:
        """The context of a recorded call (the empty one for an empty name)."""
        return self._by_call.get(call_id)

    @staticmethod
    def _branch(node: Context, prompt: Ids, matched: int) -> Context | None:
        return node.branches.get((matched, int(prompt[matched]))) if matched < len(prompt) else None

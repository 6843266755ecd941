"""The tree itself: N nodes in depth-first order as arrays, C calls, and views on their tokens.

    N   nodes; node 0 is the root and empty. A parent stands before its children, a subtree is one range. Children: lowest call first
    C   calls, in (call_index, call_id) order

A node is a run of tokens that no context leaves midway, all sampled by one call or all by none. A path from the root is one context exactly as the
model saw it.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from gyre.records import CallRecorded
from services.trajproc.core.tree.problems import ITEM_BYTES, Problem

ROOT = 0
NOT_SAMPLED = -1

TOKEN, LOGPROB = np.dtype("<i4"), np.dtype("<f4")


@dataclass(eq=False, kw_only=True)
class Shape(ABC):
    """Nodes without their tokens: what a tree in memory and a stored one have in common."""

    parents: npt.NDArray
    """int32[N]; the root is its own."""
    starts: npt.NDArray
    """int32[N], position of the node's first token in every context that holds it."""
    lengths: npt.NDArray
    """int32[N], tokens of the node; 0 for the root alone."""
    owners: npt.NDArray
    """int32[N], the call that sampled the node's tokens; NOT_SAMPLED for prompt tokens."""
    lasts: npt.NDArray
    """int32[N], one past the last node of the subtree: node n's is range(n, lasts[n])."""
    ends: npt.NDArray
    """int32[C], the node at whose end the call's context (prompt and output) ends."""

    @abstractmethod
    def tokens(self, node: int) -> npt.NDArray:
        """int32[length], not to be written to."""

    def path(self, node: int) -> list[int]:
        """Nodes from below the root to `node`."""
        found = []
        while node != ROOT:
            found.append(node)
            node = int(self.parents[node])
        return found[::-1]

    def flatten(self, node: int) -> npt.NDArray:
        """int32[T]: tokens from the root to the end of `node`."""
        return np.concatenate([np.empty(0, TOKEN), *(self.tokens(one) for one in self.path(node))])

    def context(self, call: int) -> npt.NDArray:
        """int32[T]: the call's prompt followed by its output, bit for bit."""
        return self.flatten(int(self.ends[call]))

    @property
    def tokens_unique(self) -> int:
        return int(self.lengths.sum())

    @property
    def tokens_flat(self) -> int:
        """Tokens of all root-to-leaf paths, flattened."""
        is_leaf = self.lasts == np.arange(len(self.lasts)) + 1
        return int((self.starts + self.lengths)[is_leaf].sum(dtype=np.int64))

    @property
    def tokens_sampled(self) -> int:
        """Tokens that the policy sampled, of every role."""
        return int(self.lengths[self.owners != NOT_SAMPLED].sum())


@dataclass(eq=False, kw_only=True)
class Tree(Shape):
    """A tree over records that are in memory; its tokens are theirs."""

    calls: list[CallRecorded]
    sources: npt.NDArray
    """int32[N], the call whose record the node's tokens are read from: its owner, else any that brought them."""
    set_aside: dict[str, Problem] = field(default_factory=dict)
    """Calls of which nothing is trained, and why. Those whose tokens can be trusted are in `calls` all the same."""

    def tokens(self, node: int) -> npt.NDArray:
        call = self.calls[self.sources[node]] if node != ROOT else None
        if call is None:
            return np.empty(0, TOKEN)
        if self.owners[node] == NOT_SAMPLED:
            return self._view(call.prompt_delta, TOKEN, node, call.parent_tokens)
        return self._view(call.output_ids, TOKEN, node, call.prompt_tokens)

    def logprobs(self, node: int) -> npt.NDArray:
        """float32[length]: behaviour log-probabilities, zeros where the policy did not sample."""
        if self.owners[node] == NOT_SAMPLED:
            return np.zeros(self.lengths[node], LOGPROB)
        call = self.calls[self.owners[node]]
        return self._view(call.logprobs, LOGPROB, node, call.prompt_tokens)

    def versions(self, node: int) -> npt.NDArray:
        """int32[length]: policy version of each token, −1 where the policy did not sample."""
        if self.owners[node] == NOT_SAMPLED:
            return np.full(self.lengths[node], NOT_SAMPLED, TOKEN)
        call = self.calls[self.owners[node]]
        return self._view(call.versions, TOKEN, node, call.prompt_tokens)

    def _view(self, data: bytes, dtype: np.dtype, node: int, first: int) -> npt.NDArray:
        """The node's part of a record's array whose item 0 is at position `first`."""
        offset = (int(self.starts[node]) - first) * ITEM_BYTES
        return np.frombuffer(data, dtype, int(self.lengths[node]), offset)

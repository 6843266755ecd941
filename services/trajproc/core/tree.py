"""Call records of one attempt → token-exact prefix tree (B3).

    call 0   [1 2 3]→[4 5]                     1 2 3 ─┬─ 4 5 6 → 7 8      (call 1 continues call 0: one path)
    call 1   parent 0, 5 tokens, +[6]→[7 8]           │
    call 2   parent 0, 3 tokens, +[99]→[5]            └─ 99 → 5           (call 2 was cut at 3: a path of its own)

A node holds a run of tokens; a path from the root is one context exactly as the model saw it. Inserting a record walks from
the place where its parent's context is cut and compares or attaches only its own new tokens, so a whole tree costs time
and memory linear in the *new* tokens of its records, whatever their contexts add up to.

What does not arrive as it should has a meaning:
    a call id seen twice            the first is kept (a redelivery)
    records in any order            the tree is that of call_index order
    no parent                       hangs from the root, sharing what it shares token by token
    a parent that is not on record  an orphan: its context cannot be known, so it (and what hangs from it) is left out
    lengths that do not add up      likewise
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from gyre.records import CallRecorded, array
from services.trajproc.core.roles import UNTRAINED, class_of

ROOT = 0
NOT_SAMPLED = -1


@dataclass(slots=True)
class Node:
    """A run of R tokens; `start` is the position of the first in every context that holds it.

    `owner[r]` is the index (in Tree.calls) of the call that sampled the token, NOT_SAMPLED for prompt tokens.
    """

    parent: int
    start: int
    tokens: npt.NDArray
    """int32[R]"""
    owner: npt.NDArray
    """int32[R]"""
    logprobs: npt.NDArray
    """float32[R]"""
    versions: npt.NDArray
    """int32[R]"""
    children: dict[int, int] = field(default_factory=dict)
    """First token of a child's run → the child."""

    @property
    def end(self) -> int:
        return self.start + len(self.tokens)


@dataclass(slots=True)
class Tree:
    """Nodes and, for each call, the node at whose end its context (prompt and output) ends."""

    calls: list[CallRecorded] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    orphans: int = 0

    def path(self, node: int) -> list[int]:
        """Nodes from below the root to `node`."""
        found = []
        while node != ROOT:
            found.append(node)
            node = self.nodes[node].parent
        return found[::-1]

    def context(self, call: int) -> npt.NDArray:
        """int32[T]: the call's prompt followed by its output, bit for bit."""
        return self.flatten(self.ends[call])

    def flatten(self, node: int) -> npt.NDArray:
        """int32[T]: tokens from the root to the end of `node`."""
        runs = [self.nodes[index].tokens for index in self.path(node)]
        return np.concatenate(runs) if runs else np.empty(0, np.int32)

    def top_down(self) -> list[int]:
        """Node indices, every parent before its children, the root left out."""
        return sorted(range(1, len(self.nodes)), key=lambda index: self.nodes[index].start)

    @property
    def tokens_unique(self) -> int:
        return sum(len(node.tokens) for node in self.nodes)

    @property
    def tokens_flat(self) -> int:
        """Tokens of all root-to-leaf paths, flattened."""
        return sum(node.end for node in self.nodes[1:] if not node.children)


def usable(records: Iterable[CallRecorded]) -> tuple[list[CallRecorded], int]:
    """Records in call order, each call once, whose contexts can be known; and how many were left out (repeats apart).

    Costs no work on tokens, so that a decision may ask for it without building a tree.
    """
    first: dict[str, CallRecorded] = {}
    for record in records:
        first.setdefault(record.call_id, record)
    kept: list[CallRecorded] = []
    length: dict[str, int] = {}
    for record in sorted(first.values(), key=lambda record: (record.call_index, record.call_id)):
        delta, sampled = len(record.prompt_delta) // 4, len(record.output_ids) // 4
        known = record.parent == "" or record.parent in length
        cut = record.parent_tokens if record.parent else 0
        adds_up = (
            known
            and 0 <= cut <= length.get(record.parent, 0)
            and 0 < record.prompt_tokens == cut + delta
            and len(record.logprobs) == len(record.versions) == len(record.output_ids)
        )
        if adds_up:
            kept.append(record)
            length[record.call_id] = record.prompt_tokens + sampled
    return kept, len(first) - len(kept)


def build_tree(records: Iterable[CallRecorded]) -> Tree:
    """Records of one attempt, in any order → their tree."""
    tree = Tree(nodes=[_node(ROOT, 0, 0)])
    tree.calls, tree.orphans = usable(records)
    ranks = np.array([rank(call) for call in tree.calls] or [0], np.int8)
    index_of: dict[str, int] = {}
    for index, call in enumerate(tree.calls):
        at = ROOT if not call.parent else _cut(tree, tree.ends[index_of[call.parent]], call.parent_tokens)
        tree.ends.append(_insert(tree, at, _own(call, index, tree.nodes[at].end), ranks))
        index_of[call.call_id] = index
    return tree


def rank(call: CallRecorded) -> int:
    """Which of two calls that sampled the same token in the same context owns it: a trained role before another."""
    return 1 if class_of(call.role) < UNTRAINED else 0


def _node(parent: int, start: int, length: int) -> Node:
    return Node(
        parent, start, np.empty(length, np.int32), np.full(length, NOT_SAMPLED, np.int32),
        np.zeros(length, np.float32), np.full(length, NOT_SAMPLED, np.int32),
    )  # fmt: skip


def _own(call: CallRecorded, index: int, start: int) -> Node:
    """A record's new tokens as one run."""
    delta, output = array(call.prompt_delta, "int32"), array(call.output_ids, "int32")
    run = _node(ROOT, start, len(delta) + len(output))
    sampled = slice(len(delta), None)
    run.tokens[: len(delta)], run.tokens[sampled] = delta, output
    run.owner[sampled] = index
    run.logprobs[sampled] = array(call.logprobs, "float32")
    run.versions[sampled] = array(call.versions, "int32")
    return run


def _cut(tree: Tree, node: int, tokens: int) -> int:
    """The node that ends exactly `tokens` into the context that ends with `node`; a run is split where it must be."""
    while tree.nodes[node].start >= tokens and node != ROOT:
        node = tree.nodes[node].parent
    return node if tree.nodes[node].end == tokens else _split(tree, node, tokens - tree.nodes[node].start)


def _split(tree: Tree, node: int, offset: int) -> int:
    """Cut a run in two. The lower part keeps the node's index, so that whatever ends there still does; returns the upper."""
    low = tree.nodes[node]
    high = Node(
        low.parent, low.start, low.tokens[:offset], low.owner[:offset], low.logprobs[:offset], low.versions[:offset],
        {int(low.tokens[offset]): node},
    )  # fmt: skip
    tree.nodes.append(high)
    upper = len(tree.nodes) - 1
    tree.nodes[low.parent].children[int(low.tokens[0])] = upper
    low.parent, low.start = upper, low.start + offset
    low.tokens, low.owner = low.tokens[offset:], low.owner[offset:]
    low.logprobs, low.versions = low.logprobs[offset:], low.versions[offset:]
    return upper


def _insert(tree: Tree, at: int, run: Node, ranks: npt.NDArray) -> int:
    """Walk down from the end of `at` while tokens agree, attach what is new; returns the node at whose end the run ends."""
    done = 0
    while done < len(run.tokens):
        child = tree.nodes[at].children.get(int(run.tokens[done]))
        if child is None:
            tree.nodes.append(
                Node(
                    at,
                    tree.nodes[at].end,
                    run.tokens[done:],
                    run.owner[done:],
                    run.logprobs[done:],
                    run.versions[done:],
                )
            )
            tree.nodes[at].children[int(run.tokens[done])] = len(tree.nodes) - 1
            return len(tree.nodes) - 1
        there = tree.nodes[child]
        span = min(len(there.tokens), len(run.tokens) - done)
        differ = np.flatnonzero(there.tokens[:span] != run.tokens[done : done + span])
        agreed = int(differ[0]) if len(differ) else span
        at = child if agreed == len(there.tokens) else _split(tree, child, agreed)
        _own_shared(tree.nodes[at], run, done, agreed, ranks)
        done += agreed
    return at


def _own_shared(node: Node, run: Node, done: int, agreed: int, ranks: npt.NDArray) -> None:
    """Tokens that two records share: who sampled one owns it, a trained role before another, the earlier call before the later."""
    new = run.owner[done : done + agreed]
    better = (new != NOT_SAMPLED) & ((node.owner == NOT_SAMPLED) | (ranks[new] > ranks[node.owner]))
    if better.any():
        node.owner[better] = new[better]
        node.logprobs[better] = run.logprobs[done : done + agreed][better]
        node.versions[better] = run.versions[done : done + agreed][better]

"""Which tokens each slot holds, which of them another call may reuse, which slot a new call gets. No torch.

A slot's `tokens[:known]` are its context; keys and values are written for `tokens[:filled]`. A running slot that lacks one
(`known − filled == 1`) decodes, one that lacks more is being prefilled: there is no other state. After its call a slot
keeps `tokens[:filled]` and goes idle.

Keys are reused only if every one of them was computed under the live version. New weights therefore make idle slots
worthless; a call that runs on over the change keeps its keys (recomputing a long context would stall it) but is no
source for others any more (`version` = MIXED). A call that has sampled nothing yet starts its prefill again.
"""

import numpy as np

MIXED = -1
"""Not a policy version: keys of more than one version, or of none."""

FORK_SHARE = 0.5
"""A session's call goes on in its old slot if it keeps at least this share of the slot's tokens. Below, it is another
branch (a sub-agent, a summary), and takes another slot, so that the main branch's longer context survives."""

COPY_TOKENS_MIN = 16
"""Shorter prefixes of other slots are computed, not copied, and not waited for."""


def common_prefix(a: np.ndarray, b: np.ndarray) -> int:
    n = min(len(a), len(b))
    different = a[:n] != b[:n]
    return int(different.argmax()) if different.any() else n


class SlotTable:
    """Arrays over slots, indexed by slot; tokens [slots, context_max] int64."""

    def __init__(self, slots: int, context_max: int, version: int):
        self.slots = slots
        self.context_max = context_max
        self.live_version = version
        self.tokens = np.zeros((slots, context_max), np.int64)
        self.known = np.zeros(slots, np.int64)
        self.filled = np.zeros(slots, np.int64)
        self.given = np.zeros(slots, np.int64)
        """How many of a running slot's tokens its call came with; it has sampled nothing while known == given."""
        self.version = np.full(slots, MIXED, np.int64)
        self.running = np.zeros(slots, bool)
        self.matched = np.zeros(slots, bool)
        self.sessions: list[str | None] = [None] * slots
        self._used = np.zeros(slots, np.int64)
        self._tick = 0

    def acquire(self, session_key: str, prefix: np.ndarray) -> int:
        """A slot for a new call of `prefix`, with what it already holds of it marked as filled. One must be idle."""
        idle = np.flatnonzero(~self.running)
        own = [s for s in idle if self.sessions[s] == session_key and self._reusable(s)]
        slot = max(own, key=lambda s: self._held(s, prefix), default=None)
        if slot is None or self._held(slot, prefix) < FORK_SHARE * self.filled[slot]:
            # what nobody can reuse goes first, then the least recently used
            slot = min(idle, key=lambda s: (self._reusable(s), self._used[s]))
        self.filled[slot] = min(self._held(slot, prefix), len(prefix) - 1) if self._reusable(slot) else 0
        self.tokens[slot, : len(prefix)] = prefix
        self.known[slot] = self.given[slot] = len(prefix)
        self.version[slot] = self.live_version
        self.sessions[slot] = session_key
        self.running[slot] = True
        self.matched[slot] = False
        return int(slot)

    def match(self, slot: int) -> tuple[int, int] | None:
        """(source slot, tokens) if another slot holds more of this slot's context; `tokens` are then counted as filled
        and the caller copies the keys. `matched` stays False while a slot ahead in prefill is about to hold more."""
        prefix = self.tokens[slot, : self.known[slot] - 1]
        best, source, coming = int(self.filled[slot]), None, 0
        for other in range(self.slots):
            if other == slot or not self._reusable(other):
                continue
            shared = common_prefix(self.tokens[other, : self.known[other]], prefix)
            held = min(shared, int(self.filled[other]))
            if held > best:
                best, source = held, other
            if self.running[other] and self.matched[other]:
                coming = max(coming, shared)
        self.matched[slot] = coming - best < COPY_TOKENS_MIN
        if source is None or best - self.filled[slot] < COPY_TOKENS_MIN:
            return None
        self.filled[slot] = best
        return source, best

    def release(self, slot: int) -> None:
        self._tick += 1
        self._used[slot] = self._tick
        self.running[slot] = False
        self.known[slot] = self.filled[slot]

    def set_version(self, version: int) -> None:
        """New weights are live."""
        untouched = self.running & (self.known == self.given)
        self.live_version = version
        self.version[self.running] = MIXED
        self.filled[untouched] = 0
        self.matched[untouched] = False
        self.version[untouched] = version

    def forget(self) -> None:
        """Nothing held is of use any more (a failed forward, unloaded weights)."""
        self.version[:] = MIXED
        self.filled[:] = 0

    def _reusable(self, slot: int) -> bool:
        return self.version[slot] == self.live_version

    def _held(self, slot: int, prefix: np.ndarray) -> int:
        return common_prefix(self.tokens[slot, : self.filled[slot]], prefix)

"""Where tool calls are in a text, read forward once: an opening mark, a call in its family's form (families.py), a closing mark.

What a call is follows from what stands behind its opening mark, not from where the next closing mark is: its texts may hold either. So the cost is
that of the text, whatever a model repeats.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

from services.rollout.core.calls_json import Said
from services.rollout.core.calls_xml import Schemas
from services.rollout.core.families import QWEN, Family
from services.rollout.core.opencalls import Open

MISSES_MAX = 100
"""Opening marks that begin no call, after which a text is not looked through any more: each may cost as much as all that follows it."""
NO_SCHEMAS: Schemas = {}

_SPACE = re.compile(r"\s*")


@dataclass(frozen=True, slots=True)
class Block:
    """An opening mark and what follows it."""

    start: int
    """Of the mark, or of the one before it that only calls follow."""
    end: int
    """Where what follows it begins."""
    call: Said | None = None
    """None: no tool call."""
    is_cut: bool = False
    """It ends where the text ends: more text may make a call of it, or another one."""


def blocks(text: str, schemas: Schemas = NO_SCHEMAS, at: int = 0, family: Family = QWEN) -> Iterator[Block]:
    """From `at` on. A whole call that only lacks its closing mark at the end of the text is a call."""
    misses, is_behind, open_, before = 0, False, family.open, family.before
    while misses < MISSES_MAX:
        again = family.again.match(text, at) if is_behind and family.again is not None else None
        if again is not None:
            start, inside = again.span()
        elif not open_:
            if misses or is_behind:
                return
            start = inside = at
        elif (start := text.find(open_, at)) >= 0:
            inside = start + len(open_)
        else:
            return
        block = _block(text, start, inside, schemas, family)
        is_behind = block.call is not None
        if before and is_behind and (lead := text[at:start].rstrip()).endswith(before):
            block = replace(block, start=at + len(lead) - len(before))
        at, misses = block.end, misses + (not is_behind)
        yield block


def is_closed(block: Block) -> bool:
    return block.call is not None and not block.is_cut


class FirstCall:
    """Whether a text that grows has a whole call behind its reasoning, at the cost of reading it once."""

    def __init__(self, think_open: bool, family: Family = QWEN) -> None:
        self._think_open, self._family = think_open, family
        self._at: int | None = None
        """No opening mark that is not known begins before it; None: in the reasoning."""
        self._words = 0
        """Nothing but white space stands before it."""
        self._open: list[Open] = []
        self._misses = 0
        """Opening marks that began no call."""
        self._seen = 0
        self._channels = family.channels(think_open) if family.channels is not None else None
        self._told, self._read = "", 0
        """What they made of the first so many characters."""

    def is_in(self, text: str) -> bool:
        """`text` goes on from the one of the last call."""
        if self._channels is not None:
            told, self._told = self._told, ""  # it grows in its place where nobody else has it (CPython)
            told += self._channels.push(text[self._read :])
            self._told, self._read = told, len(text)
            return self._is_in(told)
        return self._is_in(text)

    def _is_in(self, text: str) -> bool:
        family = self._family
        seen, self._seen = max(0, self._seen - max(len(family.close), len(family.think[1]))), len(text)
        if self._at is None:
            self._words = _SPACE.match(text, self._words).end()  # type: ignore[union-attr]
            seen = self._at = content_at(text, self._think_open, seen, family, self._words)
        if self._at is None or self._misses >= MISSES_MAX or text.find(family.close, seen) < 0:
            return False
        return self._is_again(text) or self._is_new(text, self._at)

    def _is_again(self, text: str) -> bool:
        """Of those that were open."""
        known, self._open, family = self._open, [], self._family
        skipped = 0  # what is before it belongs to another one
        for one in known:
            if one.start < skipped:
                continue
            if not one.is_due(text):
                self._open.append(one)
                continue
            block = _block(text, one.start, one.start + len(family.open), NO_SCHEMAS, family)
            if is_closed(block):
                return True
            if block.is_cut:
                self._open.append(one.read(text))
            else:
                self._misses, skipped = self._misses + 1, block.end
        self._at = max(self._at or 0, skipped)
        return False

    def _is_new(self, text: str, at: int) -> bool:
        family, size = self._family, len(self._family.open)
        if not size and (self._open or self._misses):
            return False  # the one place is known
        for block in blocks(text, at=max(at, self._at or 0), family=family):
            if self._misses + len(self._open) >= MISSES_MAX:
                break
            if is_closed(block):
                return True
            if block.is_cut:
                self._open.append(Open(block.start, partial(family.form.skim, at=block.start + size)).read(text))
            else:
                self._misses += 1
            self._at = block.end
        self._at = max(self._at or 0, len(text) - size + 1)
        return False


def content_at(text: str, think_open: bool, seen: int = 0, family: Family = QWEN, words: int = 0) -> int | None:
    """Where the content begins, behind the reasoning; None: not yet. `seen`: no end of the reasoning begins before it; `words`: nothing but white
    space stands before it."""
    open_, close = family.think
    first = _SPACE.match(text, words).end()  # type: ignore[union-attr]
    if text.startswith(open_, first) or think_open:
        closed = text.find(close, seen)
        return closed + len(close) if closed >= 0 else None
    return None if open_.startswith(text[first:]) else 0


def _block(text: str, start: int, inside: int, schemas: Schemas, family: Family) -> Block:
    """That of the mark from `start` to `inside`."""
    close = family.close
    call, end = family.form.read(text, inside, schemas)
    if call is None or end is None:
        return Block(start, inside if end is None else max(inside, end), is_cut=end is None)
    if text.startswith(close, end):
        return Block(start, _behind(text, end + len(close), family.behind), call)
    if end == len(text):
        return Block(start, end, call, is_cut=True)
    return Block(start, inside, is_cut=close.startswith(text[end:]))


def _behind(text: str, end: int, mark: str) -> int:
    """Where a call ends that ends at `end`, with the mark that only calls stand before."""
    if not mark:
        return end
    at = _SPACE.match(text, end).end()  # type: ignore[union-attr]
    return at + len(mark) if text.startswith(mark, at) else end

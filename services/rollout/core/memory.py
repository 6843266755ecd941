"""What a session remembers of the bodies it was sent, so that reading the next one costs what is new in it.

A harness sends its whole conversation with every call. As bytes it is, up to the end of some item, a body that was sent before:

    before  {"model": …, "messages": [ a , b , c ], "tools": … }
    now     {"model": …, "messages": [ a , b , c , d , e ], "tools": … }
                                               ▲ the same bytes up to here, so the same state of any JSON parser: read on from here

What is left that grows with the history is the comparison of bytes (some 0.1 ms a megabyte). The scanner is exact or gives up: whatever it does
not expect is read whole by `json.loads`, whose errors are told.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable
from json.decoder import WHITESPACE, JSONDecoder
from typing import Any

import numpy as np

from services.rollout.core.normal import Message, merged
from services.rollout.core.toolcalls import Parsed

BODIES_MAX = 4
"""Conversations of one session that go on beside each other and are remembered: the main agent's, some sub-agents'."""

_decode = JSONDecoder().raw_decode
_skip = WHITESPACE.match

Convert = Callable[[Any, str], Iterable[Message]]
"""An item and its place → the messages it is. Raises BadRequest."""


_NOTHING = Message("", "")


class _Odd(Exception):
    """Nothing for this scanner."""


class Body:
    """One body that was read, up to the end of its last item."""

    def __init__(self, key: str, head: dict[str, Any], data: bytes, ends: list[int]) -> None:
        self.key = key
        self.head = head
        """Fields before the list."""
        self.data = data
        self.ends = ends
        """Where each item ends, in bytes."""
        self.messages: list[Message] = []
        """What all items are, in normal form; filled by `KnownItems.messages`."""
        self.counts: list[int] = []
        """After each item, how many of `messages` there are …"""
        self.lasts: list[Message] = []
        """… and the last of them as it was then: a later item may add to it."""

    def common(self, body: bytes) -> int:
        """Number of items whose bytes, and all before them, are those of `body`."""
        end = self.ends[-1]
        if body.startswith(self.data):
            return len(self.ends)
        size = min(end, len(body))
        differs = np.frombuffer(body, np.uint8, size) != np.frombuffer(self.data, np.uint8, size)
        first = int(differs.argmax()) if differs.any() else size
        return bisect_right(self.ends, first)


class KnownItems(list):
    """The items of a list of which the first `kept` are known: these are None, what they are is in `before`."""

    def __init__(self, items: list[Any], kept: int, before: Body | None, body: Body, memory: "Memory") -> None:
        super().__init__(items)
        self.kept, self._before, self._body, self._memory = kept, before, body, memory

    def last(self) -> Any:
        """The last item, as it was sent."""
        if self[-1] is not None:
            return self[-1]
        text = self._body.data[self._body.ends[-2] :].decode()
        return _decode(text, _after(text, 0, ","))[0]

    def messages(self, where: str, convert: Convert) -> list[Message]:
        """All messages in normal form (`merged`). Never change one, nor the list: later calls share them."""
        before, body, found = self._before, self._body, list[Message]()
        if before is not None:
            found = before.messages[: before.counts[self.kept - 1]]
            if found:
                found[-1] = before.lasts[self.kept - 1]
            body.counts, body.lasts = before.counts[: self.kept], before.lasts[: self.kept]
        for index in range(self.kept, len(self)):
            found = merged(convert(self[index], f"{where}[{index}]"), found)
            body.counts.append(len(found))
            body.lasts.append(found[-1] if found else _NOTHING)
        body.messages = found
        self._memory.keep(body, before, self.kept)
        return found


class Memory:
    """Of one session."""

    def __init__(self) -> None:
        self._bodies: list[Body] = []
        """The one that was read last at the end."""
        self.recall: Callable[[str], Parsed | None] = lambda name: None
        """What its session was answered in the call, or with the tool call, of this name."""

    def read(self, data: bytes, key: str) -> dict[str, Any] | None:
        """The JSON object, its list under `key` as KnownItems; None: read it whole, as if there were no memory."""
        before, kept = None, 0
        for body in self._bodies:
            if body.key == key and (count := body.common(data)) > kept:
                before, kept = body, count
        try:
            found, items, body = _scan(data, key, before, kept)
        except (_Odd, ValueError, RecursionError, IndexError):
            return None
        return {**found, key: KnownItems(items, kept, before, body, self)}

    def keep(self, body: Body, before: Body | None, kept: int) -> None:
        """It was read to its end; it takes the place of the one that it goes on from."""
        if before in self._bodies and 2 * kept >= len(before.ends):
            self._bodies.remove(before)
        self._bodies = [*self._bodies[1 - BODIES_MAX :], body]


def _scan(data: bytes, key: str, before: Body | None, kept: int) -> tuple[dict[str, Any], list[Any], Body]:
    """Raises _Odd, ValueError (of the decoder), IndexError (an end too early)."""
    start = before.ends[kept - 1] if before is not None else 0
    text = data[start:].decode()
    items: list[Any] = [None] * kept
    ends = list(before.ends[:kept]) if before is not None else []
    found: dict[str, Any] = dict(before.head) if before is not None else {}
    at, head, is_in_list = 0, dict(found), before is not None
    is_ascii, seen, seen_bytes = text.isascii(), 0, start
    if not is_in_list:
        at = _after(text, 0, "{")
    while True:
        if is_in_list:
            at, seen, seen_bytes = _items(text, at, items, ends, (is_ascii, seen, seen_bytes))
            is_in_list = False
        else:
            name, at = _decode(text, at)
            if not isinstance(name, str) or (name == key and len(ends)):
                raise _Odd
            at = _after(text, at, ":")
            if name == key:
                at, head, is_in_list = _after(text, at, "["), dict(found), True
                if text[at] == "]":
                    raise _Odd
                first, end = _decode(text, at)
                items.append(first)
                seen, seen_bytes = end, seen_bytes + (end - seen if is_ascii else len(text[seen:end].encode()))
                ends.append(seen_bytes)
                at = end
                continue
            found[name], at = _decode(text, at)
        at = _skip(text, at).end()  # type: ignore[union-attr]
        if text[at] == "}":
            break
        at = _after(text, at, ",")
    if _skip(text, at + 1).end() != len(text) or not ends:  # type: ignore[union-attr]
        raise _Odd
    return found, items, Body(key, head, data[: ends[-1]], ends)


def _items(text: str, at: int, items: list[Any], ends: list[int], place: tuple[bool, int, int]) -> tuple[int, int, int]:
    """The rest of a list, from the end of one of its items: (after the list, end of its last item in `text` and in bytes)."""
    is_ascii, seen, seen_bytes = place
    while True:
        at = _skip(text, at).end()  # type: ignore[union-attr]
        if text[at] == "]":
            return at + 1, seen, seen_bytes
        item, at = _decode(text, _after(text, at, ","))
        items.append(item)
        seen, seen_bytes = at, seen_bytes + (at - seen if is_ascii else len(text[seen:at].encode()))
        ends.append(seen_bytes)


def _after(text: str, at: int, sign: str) -> int:
    """Behind `sign` and white space. Raises _Odd where something else stands."""
    at = _skip(text, at).end()  # type: ignore[union-attr]
    if text[at] != sign:
        raise _Odd
    return _skip(text, at + 1).end()  # type: ignore[union-attr]

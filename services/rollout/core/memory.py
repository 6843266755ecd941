"""What a session remembers of the bodies it was sent, so that reading the next one costs what is new in it.

A harness sends its whole conversation with every call. As bytes it is, up to the end of some item, a body that was sent before:

    before  {"model": …, "messages": [ a , b , c ], "tools": … }
    now     {"model": …, "messages": [ a , b , c , d , e ], "tools": … }
                                               ▲ the same bytes up to here, so the same state of any JSON parser: read on from here

What is left that grows with the history is the comparison of bytes (bodies.py). The scanner is exact or gives up: whatever it does not expect is
read whole by `json.loads`, whose errors are told.

Each byte is kept once: bodies that begin alike share their pieces, an item each, and the texts of messages that are no longer new are read again out
of them where somebody asks for them, which few templates do.
"""

from array import array
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from json.decoder import WHITESPACE, JSONDecoder
from typing import Any

from gyre.errors import InvalidInput
from services.rollout.core.bodies import Piece, Pieces
from services.rollout.core.earlier import Earlier
from services.rollout.core.normal import TURN_PARTS_MAX, Message, merged, root_digest
from services.rollout.core.toolcalls import Parsed

BODIES_MAX, BODIES_MIN, BODIES_BYTES_MAX = 32, 4, 4 << 20
"""Conversations of one session that go on beside each other and are remembered: the main agent's, some sub-agents'. Where they are more than
BODIES_MIN they have so many bytes at most; the longest ago are forgotten first, and read whole when they come again."""
PUT_AWAY_CHARS = 512
"""A text this long is worth reading again; shorter ones stay."""
VALUES_MAX, VALUE_CHARS_MIN, VALUE_CHARS_MAX = 32, 1024, 1 << 20
"""Values that are remembered, the latest, and how long they are as JSON."""

_decode = JSONDecoder().raw_decode
_skip = WHITESPACE.match

Convert = Callable[[Any, str], Iterable[Message]]
"""An item and its place → the messages it is. Raises BadRequest."""


_NOTHING = Message("", "")


class _Odd(Exception):
    """Nothing for this scanner."""


class Shared(list):
    """A long array that bodies have in common, with what was made of it."""

    def __init__(self, items: list[Any]) -> None:
        super().__init__(items)
        self._made: dict[Any, Any] = {}

    def once(self, make: Callable[[list[Any]], Any]) -> Any:
        if make not in self._made:
            self._made[make] = make(self)
        return self._made[make]


def once(value: Any, make: Callable[[Any], Any]) -> Any:
    """`make(value)`, made once for what bodies have in common. What is answered is shared then, too: never change it."""
    return value.once(make) if isinstance(value, Shared) else make(value)


class Values:
    """Long values of bodies, by their JSON text. What is answered is shared by all that ask: never change it."""

    def __init__(self) -> None:
        self._known: deque[tuple[str, Any]] = deque(maxlen=VALUES_MAX)
        self._roots: deque[tuple[list[dict[str, Any]], bytes]] = deque(maxlen=VALUES_MAX)

    def decode(self, text: str, at: int) -> tuple[Any, int]:
        """The value that begins at `at`, and where it ends. No array, object or string goes on behind its end, so one whose whole text stands
        there is that one. Raises ValueError."""
        for known, value in self._known:
            if text.startswith(known, at):
                return value, at + len(known)
        value, end = _decode(text, at)
        if VALUE_CHARS_MIN <= end - at <= VALUE_CHARS_MAX and isinstance(value, list | dict | str):
            value = Shared(value) if isinstance(value, list) else value
            self._known.appendleft((text[at:end], value))
        return value, end

    def root_digest(self, tools: list[dict[str, Any]]) -> bytes:
        """As normal.root_digest; known where the very object was asked for before."""
        for known, digest in self._roots:
            if known is tools:
                return digest
        digest = root_digest(tools)
        self._roots.appendleft((tools, digest))
        return digest


class Body:
    """One body that was read, up to the end of its last item."""

    def __init__(self, key: str, head: dict[str, Any], first_at: int, pieces: Pieces) -> None:
        self.key = key
        self.head = head
        """Fields before the list."""
        self.first_at = first_at
        """Where in the text of the first piece, behind the head, the first item begins."""
        self.pieces = pieces
        """Its bytes up to the end of the last item."""
        self.messages: list[Message] = []
        """What all items are, in normal form; filled by `KnownItems.messages`."""
        self.counts = array("I")
        """After each item, how many of `messages` there are …"""
        self.lasts: list[Message] = []
        """… and the last of them as it was then: a later item may add to it."""
        self.fresh: list[tuple[Message, _Again]] = []
        """Messages of its own whose texts may be put away once it is not the newest any more."""

    def last(self) -> Any:
        """The last item, as it was sent."""
        only = len(self.pieces) == 1
        return _decode(self.pieces[0].data().decode(), self.first_at)[0] if only else _item_of(self.pieces[-1])

    def put_away(self) -> None:
        for message, again in self.fresh:
            message.put_away(again)
        self.fresh = []


class _Again:
    """The text of a message, out of its item's bytes."""

    __slots__ = ("_convert", "_index", "_piece")

    def __init__(self, piece: Piece, convert: Convert, index: int) -> None:
        self._piece, self._convert, self._index = piece, convert, index

    def __call__(self) -> str:
        return list(self._convert(_item_of(self._piece), ""))[self._index].content


def _item_of(piece: Piece) -> Any:
    """Of any piece but the first, which holds the head of the body, too."""
    text = piece.data().decode()
    return _decode(text, _after(text, 0, ","))[0]


class KnownItems(list):
    """The items of a list of which the first `kept` are known: these are None, what they are is in `before`."""

    def __init__(self, items: list[Any], kept: int, before: Body | None, body: Body, memory: "Memory") -> None:
        super().__init__(items)
        self.kept, self._before, self._body, self._memory = kept, before, body, memory

    def last(self) -> Any:
        """The last item, as it was sent."""
        return self[-1] if self[-1] is not None else self._body.last()

    def messages(self, where: str, convert: Convert) -> list[Message]:
        """All messages in normal form (`merged`, and its errors). Never change one, nor the list: later calls share them."""
        before, body, found = self._before, self._body, list[Message]()
        if before is not None:
            found = before.messages[: before.counts[self.kept - 1]]
            if found:
                found[-1] = before.lasts[self.kept - 1]
            body.counts, body.lasts = before.counts[: self.kept], before.lasts[: self.kept]
        for index in range(self.kept, len(self)):
            new = list(convert(self[index], f"{where}[{index}]"))
            found = merged(new, found)
            if index >= TURN_PARTS_MAX and body.counts[index - TURN_PARTS_MAX] == len(found) and found:
                raise InvalidInput(f"an assistant's turn is split into more than {TURN_PARTS_MAX} messages")
            body.counts.append(len(found))
            body.lasts.append(found[-1] if found else _NOTHING)
            if index:  # the first one's bytes are those of the head, too
                body.fresh += _long(new, body.pieces[index], convert)
        body.messages = found
        self._memory.keep(body, before, self.kept)
        return found


def _long(messages: list[Message], piece: Piece, convert: Convert) -> list[tuple[Message, _Again]]:
    """Those worth putting away; an assistant's may become another message by what follows."""
    return [
        (message, _Again(piece, convert, at))
        for at, message in enumerate(messages)
        if message.role != "assistant" and len(message.content) >= PUT_AWAY_CHARS
    ]


class Memory:
    """Of one session."""

    def __init__(self, values: Values | None = None, payloads: Mapping[str, str] | None = None) -> None:
        """`values`: of all sessions; `payloads`: its session's calls, by name, as the model wrote their arguments."""
        self.payloads: Mapping[str, str] = payloads if payloads is not None else {}
        self._values = values or Values()
        self._bodies: list[Body] = []
        """The one that was read last at the end."""
        self.recall: Callable[[str], Parsed | None] = lambda name: None
        """What its session was answered in the call, or with the tool call, of this name."""
        self.earlier = Earlier()

    def read(self, data: bytes, key: str) -> dict[str, Any] | None:
        """The JSON object, its list under `key` as KnownItems; None: read it whole, as if there were no memory. Never change a value in it."""
        before, kept = None, 0
        for body in self._bodies:
            if body.key == key and (count := body.pieces.common(data)) > kept:
                before, kept = body, count
        try:
            found, items, body = _scan(data, key, before, kept, self._values)
        except (_Odd, ValueError, RecursionError, IndexError):
            return None
        return {**found, key: KnownItems(items, kept, before, body, self)}

    def keep(self, body: Body, before: Body | None, kept: int) -> None:
        """It was read to its end; it takes the place of the one that it goes on from."""
        if before is not None:
            before.put_away()
        if before in self._bodies and 2 * kept >= len(before.pieces):
            self._bodies.remove(before)
        self._bodies = [*self._bodies[1 - BODIES_MAX :], body]
        while (
            len(self._bodies) > BODIES_MIN
            and sum(one.pieces.end(len(one.pieces)) for one in self._bodies) > BODIES_BYTES_MAX
        ):
            del self._bodies[0]


class _Place:
    """Where in the text of a body a scan is, and the pieces it has cut off."""

    def __init__(self, data: bytes, start: int) -> None:
        self.text = data[start:].decode()
        self.at = 0
        self.first_at = 0
        """As in Body, once the head is read."""
        self.items: list[Any] = []
        self.pieces: list[bytes] = []
        self._data, self._is_ascii = data, self.text.isascii()
        self._seen, self._seen_bytes = 0, start

    def item(self, at: int) -> None:
        """One item of the list, which begins at `at`."""
        item, self.at = _decode(self.text, at)
        size = self.at - self._seen if self._is_ascii else len(self.text[self._seen : self.at].encode())
        self.items.append(item)
        self.pieces.append(self._data[self._seen_bytes : self._seen_bytes + size])
        self._seen, self._seen_bytes = self.at, self._seen_bytes + size

    def rest_of_list(self) -> None:
        """From the end of one of its items to its closing bracket."""
        while True:
            at = _skip(self.text, self.at).end()  # type: ignore[union-attr]
            if self.text[at] == "]":
                self.at = at
                return
            self.item(_after(self.text, at, ","))


def _scan(
    data: bytes, key: str, before: Body | None, kept: int, values: Values
) -> tuple[dict[str, Any], list[Any], Body]:
    """Raises _Odd, ValueError (of the decoder), IndexError (an end too early)."""
    place = _Place(data, before.pieces.end(kept) if before is not None else 0)
    head = _head(place, key, values) if before is None else before.head
    first_at = place.first_at if before is None else before.first_at
    place.rest_of_list()
    fields = _fields(place.text, place.at + 1, key, values)
    pieces = Pieces(before.pieces if before is not None else None, kept, place.pieces)
    return {**head, **fields}, [None] * kept + place.items, Body(key, head, first_at, pieces)


def _head(place: _Place, key: str, values: Values) -> dict[str, Any]:
    """The fields before the list; then its first item is read."""
    text, at, found = place.text, _after(place.text, 0, "{"), dict[str, Any]()
    while True:
        name, at = _name(text, at)
        if name == key:
            break
        found[name], at = values.decode(text, at)
        at = _after(text, at, ",")
    at = _after(text, at, "[")
    if text[at] == "]":
        raise _Odd
    place.first_at = at
    place.item(at)
    return found


def _fields(text: str, at: int, key: str, values: Values) -> dict[str, Any]:
    """The fields behind the list, to the end of the body."""
    found: dict[str, Any] = {}
    at = _skip(text, at).end()  # type: ignore[union-attr]
    while text[at] != "}":
        name, at = _name(text, _after(text, at, ","))
        if name == key:
            raise _Odd
        found[name], at = values.decode(text, at)
        at = _skip(text, at).end()  # type: ignore[union-attr]
    if _skip(text, at + 1).end() != len(text):  # type: ignore[union-attr]
        raise _Odd
    return found


def _name(text: str, at: int) -> tuple[str, int]:
    """A field's name, and where its value begins."""
    name, at = _decode(text, at)
    if not isinstance(name, str):
        raise _Odd
    return name, _after(text, at, ":")


def _after(text: str, at: int, sign: str) -> int:
    """Behind `sign` and white space. Raises _Odd where something else stands."""
    at = _skip(text, at).end()  # type: ignore[union-attr]
    if text[at] != sign:
        raise _Odd
    return _skip(text, at + 1).end()  # type: ignore[union-attr]

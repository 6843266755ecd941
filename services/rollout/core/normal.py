"""The normal form of messages: what means nothing is gone, what means something is kept, and each prefix has a digest (B2).

Gone: key order and spacing of JSON in tool arguments, `1.0` against `1`, None against "", reasoning, names of tool calls' ids (where the template
shows them they are kept), white space around an assistant's text, and how an assistant's turn was split into messages. Kept: everything else.
Reasoning is carried along all the same: a template may want to see it in turns that are not on record.
"""

import hashlib
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import is_
from typing import Any

from gyre.errors import InvalidInput

TURN_PARTS_MAX = 1000
"""Messages that one turn of an assistant's may be split into: putting it together costs as much as all of it for each."""
WHOLE_CHARS_MAX = 310
"""Digits, with a sign, of a whole number that may be a double."""
_REASONING = re.compile(r"^\s*<think>(.*?)</think>", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call inside a message. `arguments` is JSON text (or whatever stood in its place)."""

    call_id: str
    name: str
    arguments: str


class Message:
    """One message in normal form. Never changed once it is made; a long text may be put away, and is read again where somebody asks for it."""

    __slots__ = ("_content", "calls", "reasoning", "role", "tool_call_id")

    def __init__(
        self, role: str, content: str, calls: tuple[Call, ...] = (), tool_call_id: str = "", reasoning: str = ""
    ) -> None:
        self.role = role
        self._content: str | Callable[[], str] = content
        self.calls = calls
        self.tool_call_id = tool_call_id
        self.reasoning = reasoning
        """Of an assistant's turn; two messages that differ in it only are the same."""

    @property
    def content(self) -> str:
        content = self._content
        if not isinstance(content, str):  # once somebody has asked, others will: it stays
            content = self._content = content()
        return content

    def put_away(self, again: Callable[[], str]) -> None:
        """`again` gives the text, as often as it is asked."""
        self._content = again

    def with_content(self, content: str) -> "Message":
        return Message(self.role, content, self.calls, self.tool_call_id, self.reasoning)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return isinstance(other, Message) and self._parts() == other._parts()

    def __hash__(self) -> int:
        return hash(self._parts())

    def __repr__(self) -> str:
        return f"Message{self._parts()!r}"

    def _parts(self) -> tuple[str, tuple[Call, ...], str, str]:
        return self.role, self.calls, self.tool_call_id, self.content


def assistant(content: str, calls: tuple[Call, ...], reasoning: str = "") -> Message:
    """An assistant's turn: as replied to the harness and as it comes back, it is the same message."""
    if (thought := _REASONING.match(content)) is not None:
        content, reasoning = content[thought.end() :], reasoning or thought[1]
    return Message("assistant", content.strip(), calls, reasoning=reasoning.strip())


def merged(messages: Iterable[Message], before: list[Message] | None = None) -> list[Message]:
    """Consecutive assistant messages are one turn. `before`: what earlier messages gave; it is added to and returned. Raises InvalidInput for more
    than TURN_PARTS_MAX at once."""
    result: list[Message] = [] if before is None else before
    parts = 0
    for message in messages:
        if message.role == "assistant":
            parts += 1
            if parts > TURN_PARTS_MAX:
                raise InvalidInput(f"an assistant's turn is split into more than {TURN_PARTS_MAX} messages")
            if result and result[-1].role == "assistant":
                last = result.pop()
                said, thought = last.content + message.content, last.reasoning + message.reasoning
                message = Message("assistant", said, last.calls + message.calls, reasoning=thought)
            result.append(assistant(message.content, message.calls, message.reasoning))
        else:
            parts = 0
            result.append(message)
    return result


Places = Mapping[str, tuple[str, int]]
"""Of a recorded call that was not alone in its turn: what tells its turn apart, and which of its calls it is."""


def together(messages: list[Message], places: Places) -> list[Message]:
    """Calls of one recorded turn that come back one by one, each before its result and in any order, as the one turn they are, before all its
    results. A call that comes again is in another turn."""
    result = list[Message]()
    at, is_moved = -1, False  # where the turn is whose results are being told; whether they are to be put in its order
    for message in messages:
        turn = _turn(message.calls, places)
        if turn is not None and at >= 0 and not message.content:
            calls = result[at].calls + message.calls
            if _turn(calls, places) == turn:
                thought = result[at].reasoning + message.reasoning
                result[at] = Message("assistant", result[at].content, _in_order(calls, places), reasoning=thought)
                is_moved = True
                continue
        if message.role != "tool":
            if is_moved:
                _order_results(result, at + 1, places)
            at, is_moved = (len(result), False) if turn is not None else (-1, False)
            if turn is not None and (calls := _in_order(message.calls, places)) != message.calls:
                message, is_moved = Message("assistant", message.content, calls, reasoning=message.reasoning), True
        result.append(message)
    if is_moved:
        _order_results(result, at + 1, places)
    return result


def _turn(calls: Sequence[Call], places: Places) -> str | None:
    """The one recorded turn whose calls these are, each once."""
    names = {call.call_id for call in calls}
    turns = {places[name][0] if name in places else None for name in names}
    return turns.pop() if len(turns) == 1 and len(names) == len(calls) else None


def _in_order(calls: tuple[Call, ...], places: Places) -> tuple[Call, ...]:
    return tuple(sorted(calls, key=lambda call: places[call.call_id]))


def _order_results(messages: list[Message], begin: int, places: Places) -> None:
    """Few templates say which call a result is of: it is told by its place."""
    messages[begin:] = sorted(messages[begin:], key=lambda told: places.get(told.tool_call_id, ("", -1))[1])


def canonical_arguments(text: str, number: Callable[[str], int | float | str] | None = None) -> str:
    """Arguments that mean the same give the same text; what is no JSON stays as it is. `number`: what a number is taken for; by default itself."""
    try:
        value = json.loads(text or "{}", parse_float=number or _real, parse_int=number or _whole, parse_constant=str)
    except (ValueError, RecursionError):
        return text.strip()
    return canonical_json(value)


def canonical_json(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def root_digest(tools: Sequence[dict[str, Any]] | None) -> bytes:
    """Digest of the empty conversation under these tools."""
    return _digest(b"gyre-conversation-1", canonical_json(list(tools or ())))


def next_digest(before: bytes, message: Message, has_ids: bool = False) -> bytes:
    """Digest of a conversation one message longer; `has_ids`: the names of calls are part of it, for the model is shown them."""
    calls = [[call.name, canonical_arguments(call.arguments)] for call in message.calls]
    ids = [[message.tool_call_id, *(call.call_id for call in message.calls)]] if has_ids else []
    return _digest(before, canonical_json([message.role, message.content, calls, *ids]))


Chain = tuple[Sequence[Message], list[bytes]]
"""Messages of a conversation and the digests of its prefixes, entry i that of the first i messages."""


def prefix_digests(tools: Sequence[dict[str, Any]] | None, messages: Sequence[Message]) -> list[bytes]:
    """Digests of all prefixes: entry i is that of the first i messages."""
    return digests_from(root_digest(tools), messages, ())


def digests_from(
    root: bytes, messages: Sequence[Message], known: Iterable[Chain], has_ids: bool = False
) -> list[bytes]:
    """As prefix_digests, `root` being that of the empty conversation; as far as a `known` one goes the same way, its own. The likeliest first."""
    digests = [root]
    for earlier, said in known:
        at = len(digests) - 1
        if len(said) <= at or said[at] != digests[at]:
            continue  # another way already
        if (same := at + _same(earlier[at:], messages[at:])) > at:
            digests = said[: same + 1]
            if same == len(earlier) or same == len(messages):
                break
    for message in messages[len(digests) - 1 :]:
        digests.append(next_digest(digests[-1], message, has_ids))
    return digests


def goes_on(digests: Sequence[bytes], earlier: Chain) -> bool:
    """Whether a conversation with these digests goes on from an earlier one, all but its last words."""
    count = len(earlier[0])
    at = min(count, max(count - 2, count // 2 + 1))
    return at < len(digests) and digests[at] == earlier[1][at]


def _same(one: Sequence[Message], other: Sequence[Message]) -> int:
    """How many messages two conversations have in common from the start; most are the same objects."""
    same = list(map(is_, one, other))
    if False not in same:
        return len(same)
    return next((at for at, is_same in enumerate(same) if not is_same and one[at] != other[at]), len(same))


def finite(text: str) -> float | str:
    """A number of JSON; its text where it is too large for one, for what it would become is no JSON."""
    number = float(text)
    return number if math.isfinite(number) else text


def _real(text: str) -> int | float | str:
    """A double, as everybody reads it; a whole one is that whole number."""
    number = finite(text)
    return int(number) if isinstance(number, float) and number.is_integer() else number


def _whole(text: str) -> int | str:
    return int(text) if len(text) <= WHOLE_CHARS_MAX else text


def _digest(before: bytes, text: str) -> bytes:
    """Half characters count as the question marks that they are read as (options.clean)."""
    return hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=16, key=before[:64]).digest()

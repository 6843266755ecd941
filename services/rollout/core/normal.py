"""The normal form of messages: what means nothing is gone, what means something is kept, and each prefix has a digest (B2).

Gone: key order and spacing of JSON in tool arguments, `1.0` against `1`, None against "", reasoning, names of tool calls' ids,
white space around an assistant's text, and how an assistant's turn was split into messages. Kept: everything else.
Reasoning is carried along all the same: a template may want to see it in turns that are not on record.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

_REASONING = re.compile(r"^\s*<think>(.*?)</think>", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call inside a message. `arguments` is JSON text (or whatever stood in its place)."""

    call_id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Message:
    """One message in normal form."""

    role: str
    content: str
    calls: tuple[Call, ...] = ()
    tool_call_id: str = ""
    reasoning: str = field(default="", compare=False)
    """Of an assistant's turn; two messages that differ in it only are the same."""


def assistant(content: str, calls: tuple[Call, ...], reasoning: str = "") -> Message:
    """An assistant's turn: as replied to the harness and as it comes back, it is the same message."""
    if (thought := _REASONING.match(content)) is not None:
        content, reasoning = content[thought.end() :], reasoning or thought[1]
    return Message("assistant", content.strip(), calls, reasoning=reasoning.strip())


def merged(messages: Iterable[Message], before: list[Message] | None = None) -> list[Message]:
    """Consecutive assistant messages are one turn. `before`: what earlier messages gave; it is added to and returned."""
    result: list[Message] = [] if before is None else before
    for message in messages:
        if message.role == "assistant":
            if result and result[-1].role == "assistant":
                last = result.pop()
                said, thought = last.content + message.content, last.reasoning + message.reasoning
                message = Message("assistant", said, last.calls + message.calls, reasoning=thought)
            result.append(assistant(message.content, message.calls, message.reasoning))
        else:
            result.append(message)
    return result


def canonical_arguments(text: str) -> str:
    """Arguments that mean the same give the same text; what is no JSON stays as it is."""
    try:
        value = json.loads(text or "{}", parse_float=_plain_number)
    except (ValueError, RecursionError):
        return text.strip()
    return canonical_json(value)


def canonical_json(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def root_digest(tools: Sequence[dict[str, Any]] | None) -> bytes:
    """Digest of the empty conversation under these tools."""
    return _digest(b"gyre-conversation-1", canonical_json(list(tools or ())))


def next_digest(before: bytes, message: Message) -> bytes:
    """Digest of a conversation one message longer."""
    calls = [[call.name, canonical_arguments(call.arguments)] for call in message.calls]
    return _digest(before, canonical_json([message.role, message.content, calls]))


Chain = tuple[Sequence[Message], list[bytes]]
"""Messages of a conversation and the digests of its prefixes, entry i that of the first i messages."""


def prefix_digests(
    tools: Sequence[dict[str, Any]] | None, messages: Sequence[Message], known: Sequence[Chain] = ()
) -> list[bytes]:
    """Digests of all prefixes: entry i is that of the first i messages; as far as a `known` one goes the same way, its own."""
    digests = [root_digest(tools)]
    for earlier, said in known:
        if said[0] == digests[0] and (same := _same(earlier, messages)) >= len(digests):
            digests = said[: same + 1]
    for message in messages[len(digests) - 1 :]:
        digests.append(next_digest(digests[-1], message))
    return digests


def _same(one: Sequence[Message], other: Sequence[Message]) -> int:
    """How many messages two conversations have in common from the start; most are the same objects."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (a, b) in pairs if a is not b and a != b), min(len(one), len(other)))


def _plain_number(text: str) -> int | float:
    number = float(text)
    return int(number) if number.is_integer() and abs(number) < 2**53 else number


def _digest(before: bytes, text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16, key=before[:64]).digest()

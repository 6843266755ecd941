"""Where tool calls are in a text, read forward once: `<tool_call>`, then a JSON object or marks (calls_xml.py), then `</tool_call>`.

What a call is follows from what stands behind its opening mark, not from where the next closing mark is: its texts may hold either. So the cost is
that of the text, whatever a model repeats.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from services.rollout.core.calls_xml import MARK, Schemas, as_json, name_end, xml_call
from services.rollout.core.normal import finite
from services.rollout.core.opencalls import JsonSkim, MarksSkim, Open, Skim

OPEN, CLOSE = "<tool_call>", "</tool_call>"
THINK_OPEN, THINK_CLOSE = "<think>", "</think>"
MISSES_MAX = 100
"""Opening marks that begin no call, after which a text is not looked through any more: each may cost as much as all that follows it."""
CUT_CHARS_MAX = 12
"""An error this near to the end of a text may be only that the text ends: `-Infinity`, a character's code."""
NO_SCHEMAS: Schemas = {}


def _refuse(word: str) -> None:
    """NaN and Infinity, which Python takes for JSON."""
    raise ValueError(f"{word} is no JSON")


_SPACE = re.compile(r"\s*")
_BEHIND = re.compile(r"[}\s]*")
_WORD = re.compile(r"\s*([{}:,])\s*")
_decoder = json.JSONDecoder()
_strict = json.JSONDecoder(parse_constant=_refuse)
_lenient = json.JSONDecoder(strict=False, parse_float=finite, parse_constant=str)
_HALF = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Block:
    """An opening mark and what follows it."""

    start: int
    """Of the mark."""
    end: int
    """Where what follows it begins."""
    call: tuple[str, str] | None = None
    """(name, arguments, exactly as written where that is JSON); None: no tool call."""
    is_cut: bool = False
    """It ends where the text ends: more text may make a call of it, or another one."""


def blocks(text: str, schemas: Schemas = NO_SCHEMAS, at: int = 0) -> Iterator[Block]:
    """From `at` on. A whole call that only lacks its closing mark at the end of the text is a call."""
    misses = 0
    while misses < MISSES_MAX and (start := text.find(OPEN, at)) >= 0:
        block = _block(text, start, schemas)
        at, misses = block.end, misses + (block.call is None)
        yield block


def is_closed(block: Block) -> bool:
    return block.call is not None and not block.is_cut


class FirstCall:
    """Whether a text that grows has a whole call behind its reasoning, at the cost of reading it once."""

    def __init__(self, think_open: bool) -> None:
        self._think_open = think_open
        self._at: int | None = None
        """No opening mark that is not known begins before it; None: in the reasoning."""
        self._open: list[Open] = []
        self._misses = 0
        """Opening marks that began no call."""
        self._seen = 0

    def is_in(self, text: str) -> bool:
        """`text` goes on from the one of the last call."""
        seen, self._seen = max(0, self._seen - len(CLOSE)), len(text)
        if self._at is None:
            seen = self._at = content_at(text, self._think_open, seen)
        if self._at is None or self._misses >= MISSES_MAX or text.find(CLOSE, seen) < 0:
            return False
        return self._is_again(text) or self._is_new(text, self._at)

    def _is_again(self, text: str) -> bool:
        """Of those that were open."""
        known, self._open = self._open, []
        skipped = 0  # what is before it belongs to another one
        for one in known:
            if one.start < skipped:
                continue
            if not one.is_due(text):
                self._open.append(one)
                continue
            block = _block(text, one.start, NO_SCHEMAS)
            if is_closed(block):
                return True
            if block.is_cut:
                self._open.append(one.read(text))
            else:
                self._misses, skipped = self._misses + 1, block.end
        self._at = max(self._at or 0, skipped)
        return False

    def _is_new(self, text: str, at: int) -> bool:
        for block in blocks(text, at=max(at, self._at or 0)):
            if self._misses + len(self._open) >= MISSES_MAX:
                break
            if is_closed(block):
                return True
            if block.is_cut:
                self._open.append(Open(block.start, _skim(text, block)).read(text))
            else:
                self._misses += 1
            self._at = block.end
        self._at = max(self._at or 0, len(text) - len(OPEN) + 1)
        return False


def _skim(text: str, block: Block) -> Skim | None:
    at = _SPACE.match(text, block.start + len(OPEN)).end()  # type: ignore[union-attr]
    if block.call is not None:
        return None
    if text.startswith("{", at):
        return JsonSkim(at)
    named = name_end(text, at)
    return MarksSkim(named, CLOSE) if named is not None else None


def content_at(text: str, think_open: bool, seen: int = 0) -> int | None:
    """Where the content begins, behind the reasoning; None: not yet. `seen`: no end of the reasoning begins before it."""
    first = _SPACE.match(text).end()  # type: ignore[union-attr]
    if text.startswith(THINK_OPEN, first) or think_open:
        closed = text.find(THINK_CLOSE, seen)
        return closed + len(THINK_CLOSE) if closed >= 0 else None
    return None if THINK_OPEN.startswith(text[first:]) else 0


def _block(text: str, start: int, schemas: Schemas) -> Block:
    inside = start + len(OPEN)
    at = _SPACE.match(text, inside).end()  # type: ignore[union-attr]
    if text.startswith(MARK, at):
        call, end = xml_call(text, at, schemas, CLOSE)
    elif text.startswith("{", at):
        call, end = _json_call(text, at)
    else:
        return Block(start, inside, is_cut=MARK.startswith(text[at:]))
    if call is None or end is None:
        return Block(start, inside if end is None else max(inside, end), is_cut=end is None)
    if text.startswith(CLOSE, end):
        return Block(start, end + len(CLOSE), call)
    if end == len(text):
        return Block(start, end, call, is_cut=True)
    return Block(start, inside, is_cut=CLOSE.startswith(text[end:]))


Read = tuple[tuple[str, str] | None, int | None]
"""A call and where it ends; no call, and where to read on (None: it is cut)."""


def _json_call(text: str, at: int) -> Read:
    for read in (_as_written, _repaired):
        try:
            call, end = read(text, at)
        except json.JSONDecodeError as error:
            is_cut = error.msg.startswith("Unterminated") or error.pos >= len(text) - CUT_CHARS_MAX
        except (ValueError, RecursionError):
            is_cut = False
        else:
            return (call, _BEHIND.match(text, end).end()) if call is not None else (None, at)  # type: ignore[union-attr]
    return None, None if is_cut else at


def _as_written(text: str, at: int) -> tuple[tuple[str, str] | None, int]:
    """Raises ValueError where it is no JSON."""
    value, end = _strict.raw_decode(text, at)
    member = _arguments_of(value)
    arguments = value.get(member, {}) if member is not None else None
    if isinstance(arguments, str):
        return (value["name"], arguments) if isinstance(_strict.decode(arguments or "{}"), dict) else None, end
    if not isinstance(arguments, dict):
        return None, end
    return (value["name"], _member_text(text[at:end], member) or "{}"), end  # type: ignore[arg-type]


def _repaired(text: str, at: int) -> tuple[tuple[str, str] | None, int]:
    """What models write for JSON: control characters as they are in texts, NaN and Infinity; its arguments as JSON. Raises ValueError."""
    value, end = _lenient.raw_decode(text, at)
    member = _arguments_of(value)
    arguments = value.get(member, {}) if member is not None else None
    if isinstance(arguments, str):
        arguments = _lenient.decode(arguments or "{}")
    return (value["name"], as_json(arguments)) if isinstance(arguments, dict) else None, end


def _arguments_of(value: dict[str, Any]) -> str | None:
    """The member that holds the arguments: `arguments`, or what models are shown as a tool's `parameters`. None: this is no call; what somebody
    put elsewhere would be gone in one without arguments. Half characters, which JSON can name, are in no name."""
    name = value.get("name")
    if not isinstance(name, str) or not name or _HALF.search(name):
        return None
    if "arguments" in value:
        return "arguments"
    others = [member for member, said in value.items() if isinstance(said, dict | list)]
    if others or "parameters" in value:
        return "parameters" if others in ([], ["parameters"]) else None
    return "arguments"


def _member_text(text: str, wanted: str) -> str | None:
    """Source text of a member of the JSON object `text` (the last one of that name, as json.loads takes it)."""
    at, found = _WORD.match(text).end(), None  # type: ignore[union-attr]
    while text[at] == '"':
        key, at = _decoder.raw_decode(text, at)
        at = _WORD.match(text, at).end()  # type: ignore[union-attr]
        start = at
        _, at = _decoder.raw_decode(text, at)
        if key == wanted:
            found = text[start:at]
        separator = _WORD.match(text, at)
        if separator is None or separator[1] == "}":
            break
        at = separator.end()
    return found

"""From sampled text to an assistant's message: reasoning, content, tool calls in Qwen's `<tool_call>…</tool_call>`, with JSON or marks inside
(calls_xml.py).

A block that is neither, or has no name, stays in the content: the harness decides what to make of it. A whole call that only lacks its
closing mark at the end of the output is a call. Reasoning that was cut before its end is reasoning.
"""

import hashlib
import json
import re
from dataclasses import dataclass
from typing import Any

from services.rollout.core.calls_xml import MARK, Schemas, as_json, xml_call
from services.rollout.core.normal import Call, Message, assistant, finite

OPEN, CLOSE = "<tool_call>", "</tool_call>"
THINK_OPEN, THINK_CLOSE = "<think>", "</think>"


def _refuse(word: str) -> None:
    """NaN and Infinity, which Python takes for JSON."""
    raise ValueError(f"{word} is no JSON")


_BLOCK = re.compile(f"{OPEN}(.*?){CLOSE}", re.DOTALL)
_WORD = re.compile(r"\s*([{}:,])\s*")
_decoder = json.JSONDecoder()
_strict = json.JSONDecoder(parse_constant=_refuse)
_lenient = json.JSONDecoder(strict=False, parse_float=finite, parse_constant=str)
_HALF = re.compile("[\ud800-\udfff]")
NO_SCHEMAS: Schemas = {}


@dataclass(frozen=True, slots=True)
class Parsed:
    """An assistant's turn as the harness sees it."""

    content: str
    calls: tuple[Call, ...]
    reasoning: str = ""
    reasoning_tokens: int = 0
    """Of the output, up to the end of its reasoning."""
    stop_sequence: str = ""
    """What ended the output, where the request named it; it is in no field of the message."""

    def message(self) -> Message:
        return assistant(self.content, self.calls)


def parse(text: str, call_id: str, think_open: bool = False, schemas: Schemas = NO_SCHEMAS) -> Parsed:
    """`text` is the output without its end-of-turn token; `think_open`: the prompt already opened the reasoning; `schemas`: of the tools that were
    offered. Never raises."""
    reasoning, text = _split_reasoning(text, think_open)
    rest, calls, end = [], [], 0
    for block in _BLOCK.finditer(text):
        named = _name_and_arguments(block[1], schemas)
        if named is None:
            continue
        rest.append(text[end : block.start()])
        end = block.end()
        calls.append(Call(tool_call_id(call_id, len(calls)), *named))
    before, opened, block = text[end:].rpartition(OPEN)
    if opened and CLOSE not in block and (named := _name_and_arguments(block, schemas)) is not None:
        rest.append(before)
        calls.append(Call(tool_call_id(call_id, len(calls)), *named))
    else:
        rest.append(text[end:])
    return Parsed("".join(rest).strip(), tuple(calls), reasoning)


def tool_call_id(call_id: str, index: int) -> str:
    """The same call gives the same ids, also from a gateway that started anew."""
    return "call_" + hashlib.sha256(f"{call_id}/{index}".encode()).hexdigest()[:24]


def call_prefix(name: str, is_xml: bool = False) -> str:
    """The beginning of a call: of this tool, of any where `name` is empty."""
    if is_xml:
        return f"{OPEN}\n{MARK}" + (f"{name}>\n" if name else "")
    return f'{OPEN}\n{{"name": ' + (f'{json.dumps(name, ensure_ascii=False)}, "arguments": ' if name else '"')


def _split_reasoning(text: str, think_open: bool) -> tuple[str, str]:
    stripped = text.lstrip()
    opened = stripped.startswith(THINK_OPEN)
    if not opened and not think_open:
        return "", text
    inside, _, after = (stripped[len(THINK_OPEN) :] if opened else stripped).partition(THINK_CLOSE)
    return inside.strip(), after


def _name_and_arguments(block: str, schemas: Schemas) -> tuple[str, str] | None:
    """(name, arguments, exactly as written where that is JSON); None when this is no tool call."""
    if block.lstrip().startswith(MARK):
        return xml_call(block, schemas)
    for read in (_as_written, _repaired):
        try:
            return read(block)
        except (ValueError, RecursionError):
            continue
    return None


def _is_name(name: Any) -> bool:
    """Half characters, which JSON can name, are in none."""
    return isinstance(name, str) and bool(name) and not _HALF.search(name)


def _as_written(block: str) -> tuple[str, str] | None:
    """Raises ValueError where it is no JSON."""
    value = _strict.decode(block)
    if not isinstance(value, dict) or not _is_name(value.get("name")):
        return None
    arguments = value.get("arguments", {})
    if isinstance(arguments, str):
        return (value["name"], arguments) if isinstance(_strict.decode(arguments or "{}"), dict) else None
    return (value["name"], _member_text(block, "arguments") or "{}") if isinstance(arguments, dict) else None


def _repaired(block: str) -> tuple[str, str] | None:
    """What models write for JSON: control characters as they are in texts, NaN and Infinity, braces too many behind it; its arguments as JSON. Raises
    ValueError."""
    value, end = _lenient.raw_decode(block.lstrip())
    if not isinstance(value, dict) or not _is_name(value.get("name")):
        return None
    arguments = value.get("arguments", {})
    if isinstance(arguments, str):
        arguments = _lenient.decode(arguments or "{}")
    if not isinstance(arguments, dict) or block.lstrip()[end:].strip("} \t\r\n"):
        return None
    return value["name"], as_json(arguments)


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

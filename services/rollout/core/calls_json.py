"""Tool calls and arguments as JSON, exactly as written where that is JSON, repaired where it is what models write for it.

{"name": "edit", "arguments": {"path": "a.py"}}      a call (Qwen, Hermes)
{"path": "a.py"}                                     arguments whose name stands before them (calls_headed.py)
"""

import json
import re
from collections.abc import Callable
from typing import Any, NamedTuple

from services.rollout.core.calls_xml import as_json
from services.rollout.core.normal import finite

CUT_CHARS_MAX = 12
"""An error this near to the end of a text may be only that the text ends: `-Infinity`, a character's code."""


class Said(NamedTuple):
    """A call as the model said it."""

    name: str
    arguments: str
    """Exactly as written where that is JSON."""
    own_id: str = ""
    """What the model itself calls it, where its form has names of calls (callids.py)."""


Read = tuple[Said | None, int | None]
"""A call and where it ends; no call, and where to read on (None: it is cut)."""


def _refuse(word: str) -> None:
    """NaN and Infinity, which Python takes for JSON."""
    raise ValueError(f"{word} is no JSON")


_BEHIND = re.compile(r"[}\s]*")
_WORD = re.compile(r"\s*([{}:,])\s*")
_decoder = json.JSONDecoder()
_strict = json.JSONDecoder(parse_constant=_refuse)
lenient = json.JSONDecoder(strict=False, parse_float=finite, parse_constant=str)
_HALF = re.compile("[\ud800-\udfff]")
_OF_CALL = {"name", "arguments", "parameters", "type", "id"}
"""Members of an object that is a call though no mark says so."""


def json_call(text: str, at: int) -> Read:
    """The call whose object begins at `at`; braces too many are its own."""
    return _first(text, at, _as_written, _repaired)


def bare_call(text: str, at: int) -> Read:
    """As json_call where no mark says that it is one: only an object that has arguments, and nothing that calls have not."""
    said, end = _first(text, at, _as_written, _repaired)
    if said is None:
        return None, end
    value = lenient.raw_decode(text, at)[0]
    return (said, end) if value.keys() <= _OF_CALL and ("arguments" in value or "parameters" in value) else (None, at)


def json_arguments(text: str, at: int, name: str, own_id: str) -> Read:
    """The call of this name whose arguments begin at `at`; braces too many are its own."""

    def as_written(text: str, at: int) -> tuple[Said | None, int]:
        end = _strict.raw_decode(text, at)[1]
        return Said(name, text[at:end], own_id), end

    def repaired(text: str, at: int) -> tuple[Said | None, int]:
        value, end = lenient.raw_decode(text, at)
        return Said(name, as_json(value), own_id), end

    return _first(text, at, as_written, repaired)


def _first(text: str, at: int, *readers: Callable[[str, int], tuple[Said | None, int]]) -> Read:
    is_cut = False
    for read in readers:
        try:
            said, end = read(text, at)
        except json.JSONDecodeError as error:
            is_cut = error.msg.startswith("Unterminated") or error.pos >= len(text) - CUT_CHARS_MAX
        except (ValueError, RecursionError):
            is_cut = False
        else:
            return (said, _BEHIND.match(text, end).end()) if said is not None else (None, at)  # type: ignore[union-attr]
    return None, None if is_cut else at


def _as_written(text: str, at: int) -> tuple[Said | None, int]:
    """Raises ValueError where it is no JSON."""
    value, end = _strict.raw_decode(text, at)
    member = _arguments_of(value)
    arguments = value.get(member, {}) if member is not None else None
    if isinstance(arguments, str):
        is_object = isinstance(_strict.decode(arguments or "{}"), dict)
        return Said(value["name"], arguments, _own_id(value)) if is_object else None, end
    if not isinstance(arguments, dict):
        return None, end
    written = _member_text(text[at:end], member) or "{}"  # type: ignore[arg-type]
    return Said(value["name"], written, _own_id(value)), end


def _repaired(text: str, at: int) -> tuple[Said | None, int]:
    """What models write for JSON: control characters as they are in texts, NaN and Infinity; its arguments as JSON. Raises ValueError."""
    value, end = lenient.raw_decode(text, at)
    member = _arguments_of(value)
    arguments = value.get(member, {}) if member is not None else None
    if isinstance(arguments, str):
        arguments = lenient.decode(arguments or "{}")
    return Said(value["name"], as_json(arguments), _own_id(value)) if isinstance(arguments, dict) else None, end


def _own_id(value: dict[str, Any]) -> str:
    own = value.get("id")
    return own if isinstance(own, str) else ""


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

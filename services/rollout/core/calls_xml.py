"""Tool calls as Qwen3-Coder and its successors write them: texts between marks instead of JSON.

    <function=edit>
    <parameter=path>
    a.py
    </parameter>
    </function>

What a value is follows from the tool's schema, as the model was shown it: text where it says so or says nothing, else JSON. Python's words for
true, false and none are taken, too: the model's own template writes them so in its history.
"""

import json
import re
from collections.abc import Mapping
from functools import cache
from typing import Any

from services.rollout.core.normal import finite

MARK = "<function="
_NAME, END = re.compile(r"<function=([^>\s]+)>"), "</function>"
_PARAMETER, PARAMETER_END = re.compile(r"<parameter=([^>\s]+)>"), "</parameter>"
_SPACE = re.compile(r"\s*")
_WORDS = {"True": True, "False": False, "None": None}
CUT_CHARS_MAX = 200
"""A mark this long that is not closed is none."""

Schemas = Mapping[str, Mapping[str, Any]]
"""Tool → the schemas of its parameters."""


def xml_call(text: str, at: int, schemas: Schemas, close: str) -> tuple[tuple[str, str] | None, int | None]:
    """The call that begins at `at`: (name, arguments as JSON), and where it ends. None when there is no such call, and where it stops being one;
    None there, too: the text is cut before that is known. A call ends with `</function>`, which may be left out before `close`; output that ends
    between two parameters is no whole call."""
    named = _NAME.match(text, at)
    if named is None:
        return None, _broken(text, at)
    texts, at = list[tuple[str, int, int]](), _space(text, named.end())
    while not text.startswith((END, close), at):
        parameter = _PARAMETER.match(text, at)
        if parameter is None:
            return None, _broken(text, at)
        ended = text.find(PARAMETER_END, parameter.end())
        if ended < 0:
            return None, None
        if (over := call_end(close).search(text, parameter.end(), ended)) is not None:
            return None, over.end()  # the parameter's end is missing: what follows is another call's
        texts.append((parameter[1], parameter.end(), ended))
        at = _space(text, ended + len(PARAMETER_END))
    known = schemas.get(named[1], {})
    arguments = {
        name: _value(text[begun:ended].removeprefix("\n").removesuffix("\n"), known.get(name))
        for name, begun, ended in texts
    }
    at = _space(text, at + len(END)) if text.startswith(END, at) else at
    return (named[1], as_json(arguments)), at


def is_cut(text: str, at: int) -> bool:
    """Whether no whole mark stands at `at`, and more text may make one."""
    return _broken(text, _space(text, at)) is None


@cache
def call_end(close: str) -> re.Pattern[str]:
    """Behind which, inside of a parameter's text, another call's words begin."""
    return re.compile(rf"{END}\s*{close}")


def name_end(text: str, at: int) -> int | None:
    """Where the name of the call that begins at `at` ends; None: it is not there, or not whole."""
    named = _NAME.match(text, at)
    return named.end() if named is not None else None


def parameter_begin(text: str, at: int) -> int | None:
    """Where the text of the parameter begins whose mark stands at `at`, white space before it left aside; None: none does, or not whole."""
    parameter = _PARAMETER.match(text, _space(text, at))
    return parameter.end() if parameter is not None else None


def _space(text: str, at: int) -> int:
    return _SPACE.match(text, at).end()  # type: ignore[union-attr]


def _broken(text: str, at: int) -> int | None:
    """Where a mark should stand and none does; None where the text ends within one."""
    rest = text[at : at + CUT_CHARS_MAX]
    return at if at + len(rest) < len(text) or ">" in rest or "\n" in rest.strip() else None


def as_json(value: Any) -> str:
    """Half characters, which JSON can name and UTF-8 cannot carry, stay escaped."""
    text = json.dumps(value, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(value)
    return text


def schemas_of(tools: Any) -> Schemas:
    """Of tools in chat completions' form."""
    found = {}
    for tool in tools or ():
        properties = tool["function"]["parameters"].get("properties")
        found[tool["function"]["name"]] = properties if isinstance(properties, dict) else {}
    return found


def _value(text: str, schema: Any) -> Any:
    kinds = schema.get("type") if isinstance(schema, dict) else None
    if not isinstance(kinds, str | list) or "string" in kinds:
        return text
    if text.strip() in _WORDS:
        return _WORDS[text.strip()]
    try:
        return json.loads(text, parse_float=finite, parse_constant=str)
    except (ValueError, RecursionError):
        return text

"""Tool calls with texts between marks instead of JSON, as Qwen3-Coder and its successors, GLM, MiniMax and DeepSeek from V3.2 on write them.

    <function=edit>              edit                              <invoke name="edit">
    <parameter=path>             <arg_key>path</arg_key>           <parameter name="path">a.py</parameter>
    a.py                         <arg_value>a.py</arg_value>
    </parameter>
    </function>

What a value is follows from what the parameter's mark says of it (DeepSeek), else from the tool's schema, as the model was shown it: text where
it says so or says nothing, else JSON. Python's words for
true, false and none are taken, too: Qwen's template writes them so in its history.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from services.rollout.core.normal import finite

_SPACE = re.compile(r"\s*")
_WORDS = {"True": True, "False": False, "None": None}
_KINDS = {"true": {"type": "string"}, "false": {"type": "object"}}
"""What a mark says, as a schema does."""
CUT_CHARS_MAX = 200
"""A mark this long that is not closed is none."""

Schemas = Mapping[str, Mapping[str, Any]]
"""Tool → the schemas of its parameters."""


@dataclass(frozen=True, slots=True, eq=False)
class Marks:
    """How one family writes a call."""

    name: re.Pattern[str]
    """What a call begins with; its first group is the name."""
    parameter: re.Pattern[str]
    """What stands before the text of a parameter; its first group is the name, and a group `is_text` says `true` or `false` of it."""
    parameter_end: str
    close: str
    """The mark behind the whole call."""
    over: re.Pattern[str]
    """Behind which, inside of a parameter's text, another call's words begin."""
    end: str = ""
    """What stands before `close`, if anything; it may be left out."""
    around: str = ""
    """What stands on either side of a parameter's text."""
    has_words: bool = False
    """A mark is one word in angle brackets; else it is only its length that tells where one cannot come any more."""

    def ends(self, text: str, at: int) -> bool:
        """Whether the call has no more parameters."""
        return text.startswith((self.end, self.close) if self.end else self.close, at)

    def begun(self, text: str, at: int) -> int | None:
        """Where the text of the parameter begins whose mark stands at `at`, white space before it left aside; None: none does, or not whole."""
        parameter = self.parameter.match(text, _space(text, at))
        return parameter.end() if parameter is not None else None

    def is_cut(self, text: str, at: int) -> bool:
        """Whether no whole mark stands at `at`, and more text may make one."""
        at = _space(text, at)
        return not self.ends(text, at) and self.broken(text, at) is None

    def broken(self, text: str, at: int) -> int | None:
        """Where a mark should stand and none does; None where the text ends within one."""
        rest = text[at : at + CUT_CHARS_MAX]
        if at + len(rest) < len(text):
            return at
        return at if self.has_words and (">" in rest or "\n" in rest.strip()) else None


def marked_call(text: str, at: int, schemas: Schemas, marks: Marks) -> tuple[tuple[str, str] | None, int | None]:
    """The call that begins at `at`: (name, arguments as JSON), and where it ends. None when there is no such call, and where it stops being one;
    None there, too: the text is cut before that is known. A call ends with `end`, which may be left out before `close`; output that ends
    between two parameters is no whole call."""
    named = marks.name.match(text, at)
    if named is None:
        return None, marks.broken(text, at)
    texts, at = list[tuple[re.Match[str], int]](), _space(text, named.end())
    while not marks.ends(text, at):
        parameter = marks.parameter.match(text, at)
        if parameter is None:
            return None, marks.broken(text, at)
        ended = text.find(marks.parameter_end, parameter.end())
        if ended < 0:
            return None, None
        if (over := marks.over.search(text, parameter.end(), ended)) is not None:
            return None, over.end()  # the parameter's end is missing: what follows is another call's
        texts.append((parameter, ended))
        at = _space(text, ended + len(marks.parameter_end))
    known, line, arguments = schemas.get(named[1], {}), marks.around, dict[str, Any]()
    for parameter, ended in texts:
        said = text[parameter.end() : ended].removeprefix(line).removesuffix(line)
        kind = _KINDS.get(parameter.groupdict().get("is_text", ""))
        arguments[parameter[1]] = value_of(said, kind or known.get(parameter[1]))
    if marks.end and text.startswith(marks.end, at):
        at = _space(text, at + len(marks.end))
    return (named[1], as_json(arguments)), at


def _space(text: str, at: int) -> int:
    return _SPACE.match(text, at).end()  # type: ignore[union-attr]


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


def value_of(text: str, schema: Any) -> Any:
    kinds = schema.get("type") if isinstance(schema, dict) else None
    if not isinstance(kinds, str | list) or "string" in kinds:
        return text
    if text.strip() in _WORDS:
        return _WORDS[text.strip()]
    try:
        return json.loads(text, parse_float=finite, parse_constant=str)
    except (ValueError, RecursionError):
        return text

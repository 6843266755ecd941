"""Options of a call that every wire format knows, under names of its own: limits, stop sequences, tool choice, the reply's form.

| wanted | what is done |
|---|---|
| stop sequences | the output ends with the token that completes one; the reply ends before it (reader.py) |
| a tool must be called | the prompt ends with the beginning of such a call, which nobody sampled; what follows is the model's own |
| one call at most | the output ends after its first whole call |
| a reply in JSON, by a schema or not | the system prompt says so; sampling is never constrained |
"""

import json
from collections import Counter
from collections.abc import Sequence
from operator import attrgetter
from typing import Any

from gyre.errors import InvalidInput
from services.rollout.core.memory import Memory
from services.rollout.core.normal import Message, canonical_json

CALLS_MAX = 20_000
"""Tool calls of a conversation; templates look at each."""
STOPS_MAX, STOP_CHARS_MAX = 16, 256
SCHEMA_CHARS_MAX = 100_000

_calls_of, _role_of = attrgetter("calls"), attrgetter("role")

Tools = list[dict[str, Any]]


class BadRequest(InvalidInput):
    """`param` is the place, `error_code` OpenAI's word for it."""

    def __init__(self, message: str, param: str | None = None, error_code: str = "invalid_value") -> None:
        super().__init__(message)
        self.param = param
        self.error_code = error_code


def number(data: dict[str, Any], name: str, low: float, high: float) -> float | None:
    value = data.get(name)
    if value is None:
        return None
    if not isinstance(value, int | float) or isinstance(value, bool) or not low <= value <= high:
        raise BadRequest(f"{name} must be a number from {low:g} to {high:g}", name)
    return float(value)


def count(value: Any, name: str) -> int:
    """A limit of tokens."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise BadRequest(f"{name} must be a whole number of at least 1", name)
    return value


def flag(data: dict[str, Any], name: str, default: bool = False) -> bool:
    value = data.get(name)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise BadRequest(f"{name} must be true or false", name)
    return value


def object_or_none(data: dict[str, Any], name: str) -> dict[str, Any] | None:
    value = data.get(name)
    if value is not None and not isinstance(value, dict):
        raise BadRequest(f"{name} must be an object", name)
    return value


def stop_sequences(value: Any, name: str) -> tuple[str, ...]:
    """Of a text or a list of texts."""
    if value is None or value == "":
        return ()
    found = [value] if isinstance(value, str) else value
    if not isinstance(found, list) or not all(isinstance(text, str) for text in found):
        raise BadRequest(f"{name} must be text or a list of texts", name)
    if len(found) > STOPS_MAX:
        raise BadRequest(f"{name}: {len(found)} stop sequences, at most {STOPS_MAX} are taken", name)
    for index, text in enumerate(found):
        if not text or len(text) > STOP_CHARS_MAX or text != clean(text):
            place = f"{name}[{index}]"
            raise BadRequest(f"{place} must be Unicode text of 1 to {STOP_CHARS_MAX} characters", place)
    return tuple(dict.fromkeys(found))


def forced_tool(wanted: str, tools: Tools, place: str) -> str:
    """`wanted` when it is one of the tools, or empty and there are tools at all."""
    names = [tool["function"]["name"] for tool in tools]
    if not names:
        raise BadRequest(f"{place}: a tool must be called, but no tools are offered", place)
    if wanted and wanted not in names:
        raise BadRequest(f"{place}: {wanted[:80]!r} is none of the tools", place)
    return wanted


def allowed_tools(mode: Any, wanted: Any, tools: Tools, place: str) -> tuple[Tools, str | None]:
    """Those of the tools that may be called, by name, which are all that the model is shown; and the one that must be (ChatRequest.force). Entries
    without a name are tools that nobody here runs."""
    if mode not in ("auto", "required") or not isinstance(wanted, list):
        raise BadRequest(
            f"{place} of type allowed_tools must have a mode, auto or required, and a list of tools", place
        )
    names = {tool["function"]["name"]: tool for tool in tools}
    said = [name for entry in wanted if isinstance(name := _named(entry), str)]
    for name in said:
        if name not in names:
            raise BadRequest(f"{place}: {name[:80]!r} is none of the tools", place)
    kept = [names[name] for name in names if name in said]
    return kept, forced_tool(said[0] if len(kept) == 1 else "", kept, place) if mode == "required" else None


def _named(entry: Any) -> Any:
    """The name in an entry of either of OpenAI's APIs."""
    if not isinstance(entry, dict):
        return None
    function = entry.get("function")
    return function.get("name") if isinstance(function, dict) else entry.get("name")


def json_instruction(form: Any, place: str) -> str:
    """What the model is told of a form `{type: text | json_object | json_schema, …}`; empty for text."""
    if form is None:
        return ""
    if not isinstance(form, dict):
        raise BadRequest(f"{place} must be an object with a type", place)
    match form.get("type"):
        case "text":
            return ""
        case "json_object":
            return "When you answer without calling a tool, answer with one JSON object and nothing else."
        case "json_schema":
            inside = form.get("json_schema")
            schema = (inside if isinstance(inside, dict) else form).get("schema")
            if not isinstance(schema, dict):
                raise BadRequest(f"{place} of type json_schema must have a schema, an object", place)
            text = clean(canonical_json(schema))
            if len(text) > SCHEMA_CHARS_MAX:
                raise BadRequest(
                    f"{place}: the schema is {len(text)} characters long, at most {SCHEMA_CHARS_MAX}", place
                )
            return f"When you answer without calling a tool, answer with JSON of this schema and nothing else:\n{text}"
        case kind:
            raise BadRequest(
                f"{place}.type is {repr(kind)[:80]}; known: text, json_object, json_schema",
                place,
                "unsupported_value",
            )


def with_instruction(messages: list[Message], text: str) -> list[Message]:
    """`text` as the end of the first system message, where it stays while a conversation grows."""
    if not text:
        return messages
    if messages[0].role == "system":
        return [messages[0].with_content(f"{messages[0].content}\n\n{text}"), *messages[1:]]
    return [Message("system", text), *messages]


def checked_calls(messages: Sequence[Message]) -> None:
    """Results of tools stand after calls, and one turn's calls have names of their own. Which call a result answers is the harness's affair:
    some name calls anew, some cut their history."""
    turns = list(map(_calls_of, messages))
    if (calls := sum(map(len, turns))) > CALLS_MAX:
        raise BadRequest(f"{calls} tool calls, at most {CALLS_MAX} are taken", "messages")
    first = next(at for at, called in enumerate(turns) if called) if calls else len(turns)
    if "tool" in (roles := list(map(_role_of, messages[:first]))):
        name = messages[roles.index("tool")].tool_call_id
        raise BadRequest(f"the tool result for {name[:80]!r} answers no call before it", "messages")
    for called in turns:
        if len(called) > 1:
            _check_names([call.call_id for call in called if call.call_id])


def _check_names(names: list[str]) -> None:
    if len(set(names)) < len(names):
        twice, _ = Counter(names).most_common(1)[0]
        raise BadRequest(f"two calls of one turn have the id {twice[:80]!r}", "messages")


def clean(text: str) -> str:
    """Lone surrogates (JSON can carry them and a header's odd bytes become them, UTF-8 cannot) become question marks."""
    try:
        text.encode()
        return text
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace").decode()


def json_object(body: bytes, memory: Memory | None = None, items: str = "") -> dict[str, Any]:
    """Its list under `items` may be KnownItems, where the session remembers some of it. Raises BadRequest."""
    if memory is not None and (known := memory.read(body, items)) is not None:
        return known
    try:
        data = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"the body is not JSON: {error}", error_code="invalid_json") from error
    if not isinstance(data, dict):
        raise BadRequest("the body must be a JSON object", error_code="invalid_json")
    return data

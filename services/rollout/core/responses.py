"""A request of OpenAI's responses API in the normal form that all wire formats share; what is wrong is said with its place.

| there | here |
|---|---|
| `instructions` | the first message |
| `message` items of role developer or system | system messages where they stand |
| `function_call`, `custom_tool_call` items | calls of the assistant message they belong to; free text becomes `{"input": text}` |
| their `_output` items | tool messages |
| `reasoning`, `web_search_call` items | gone: reasoning means nothing (normal.py), and searches are run by nobody here |
| a `namespace` of tools | its tools, named `namespace__name` |
| `custom` tools (free text) | functions of one text, `input` |
| built-in tools (`web_search` and others) | left out: nobody here runs them |
| `previous_response_id`, `conversation` | refused: nothing is stored, the whole conversation must be sent |
| `reasoning`, `include`, `store`, `text.verbosity`, `metadata` | no effect |
"""

from typing import Any

from services.rollout.core.normal import Call, Message, canonical_json, merged
from services.rollout.core.request import (
    MESSAGES_MAX,
    MODEL_CHARS_MAX,
    ROLES,
    BadRequest,
    ChatRequest,
    ToolName,
    clean,
    json_object,
    number,
    tools_of,
)

_GONE = ("reasoning", "web_search_call")
_FREE_TEXT = {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}


def parse_responses_request(body: bytes) -> ChatRequest:
    """Raises BadRequest."""
    data = json_object(body)
    _refuse_unsupported(data)
    names: dict[str, ToolName] = {}
    tools = [] if data.get("tool_choice") == "none" else _tools(data.get("tools"), "tools", names)
    return ChatRequest(
        messages=merged(_instructions(data.get("instructions")) + _input(data.get("input"))), tools=tools_of(tools),
        max_tokens=_max_tokens(data.get("max_output_tokens")),
        temperature=number(data, "temperature", 0.0, 2.0), top_p=number(data, "top_p", 0.0, 1.0),
        stream=data.get("stream") is True, include_usage=True,
        model=clean(str(data.get("model") or "")[:MODEL_CHARS_MAX]), tool_names=names,
    )  # fmt: skip


def _refuse_unsupported(data: dict[str, Any]) -> None:
    for name in ("previous_response_id", "conversation"):
        if data.get(name):
            raise BadRequest(
                f"{name}: nothing is stored here, send the whole conversation as input", name, "unsupported_parameter"
            )
    if data.get("tool_choice") not in (None, "none", "auto"):
        raise BadRequest(
            "tool_choice must be auto or none: sampling is never constrained", "tool_choice", "unsupported_value"
        )
    text = data.get("text")
    form = text.get("format") if isinstance(text, dict) else None
    if form is not None and not (isinstance(form, dict) and form.get("type") == "text"):
        raise BadRequest("only text.format of type text is supported", "text.format", "unsupported_value")


def _instructions(value: Any) -> list[Message]:
    if value is None or value == "":
        return []
    if not isinstance(value, str):
        raise BadRequest("instructions must be text", "instructions")
    return [Message("system", clean(value))]


def _input(value: Any) -> list[Message]:
    if isinstance(value, str):
        return [Message("user", clean(value))]
    if not isinstance(value, list) or not value:
        raise BadRequest("input must be text or a list of at least one item", "input")
    if len(value) > MESSAGES_MAX:
        raise BadRequest(f"{len(value)} items, at most {MESSAGES_MAX} are taken", "input")
    found = [_item(item, f"input[{index}]") for index, item in enumerate(value)]
    return [message for message in found if message is not None]


def _item(item: Any, where: str) -> Message | None:
    """None for what is gone."""
    if not isinstance(item, dict):
        raise BadRequest(f"{where} must be an object", where)
    match item.get("type", "message"):
        case "message":
            return _message(item, where)
        case "function_call" | "custom_tool_call" as kind:
            name = item.get("name")
            if not isinstance(name, str):
                raise BadRequest(f"{where} must have a name", where)
            said = item.get("arguments" if kind == "function_call" else "input")
            arguments = said if isinstance(said, str) else canonical_json(said if said is not None else {})
            if kind == "custom_tool_call":
                arguments = canonical_json({"input": arguments})
            call = Call(str(item.get("call_id") or ""), clean(_name(item.get("namespace"), name)), clean(arguments))
            return Message("assistant", "", (call,))
        case "function_call_output" | "custom_tool_call_output":
            answered = item.get("call_id")
            if not isinstance(answered, str):
                raise BadRequest(f"{where}.call_id must say which call this answers", f"{where}.call_id")
            return Message("tool", _text(item.get("output"), f"{where}.output"), tool_call_id=clean(answered))
        case kind if kind in _GONE:
            return None
        case kind:
            raise BadRequest(
                f"{where} is of type {repr(kind)[:80]}, which is not supported", where, "unsupported_value"
            )


def _message(item: dict[str, Any], where: str) -> Message:
    said = item.get("role")
    if not isinstance(said, str) or said not in ROLES or said == "tool":
        known = "system, developer, user, assistant"
        raise BadRequest(f"{where}.role is {repr(said)[:80]}; known roles: {known}", f"{where}.role")
    return Message(ROLES[said], _text(item.get("content"), f"{where}.content"))


def _text(content: Any, where: str) -> str:
    if content is None:
        return ""
    if isinstance(content, str):
        return clean(content)
    if not isinstance(content, list):
        raise BadRequest(f"{where} must be text or a list of parts", where)
    texts = []
    for index, part in enumerate(content):
        kind = part.get("type") if isinstance(part, dict) else None
        if kind == "refusal":
            continue
        if kind not in ("input_text", "output_text", "text") or not isinstance(part.get("text"), str):
            raise BadRequest(
                f"{where}[{index}] is of type {repr(kind)[:80]}: this model reads text only", f"{where}[{index}]"
            )
        texts.append(clean(part["text"]))
    return "\n".join(texts)


def _tools(value: Any, where: str, names: dict[str, ToolName], namespace: str = "") -> list[dict[str, Any]]:
    """Functions in chat completions' form; `names` takes up what they were."""
    if value is None:
        return []
    if not isinstance(value, list):
        raise BadRequest(f"{where} must be a list", where)
    found: list[dict[str, Any]] = []
    for index, tool in enumerate(value):
        place = f"{where}[{index}]"
        kind = tool.get("type") if isinstance(tool, dict) else None
        if kind not in ("function", "custom", "namespace"):
            if isinstance(kind, str):
                continue
            raise BadRequest(f"{place} must be a tool with a type", place)
        name = tool.get("name")
        if not isinstance(name, str):
            raise BadRequest(f"{place} must have a name", place)
        if kind == "namespace":
            found += _tools(tool.get("tools"), f"{place}.tools", names, _name(namespace, name))
            continue
        if namespace or kind == "custom":
            names[clean(_name(namespace, name))] = ToolName(name, namespace, kind == "custom")
        parameters = _FREE_TEXT if kind == "custom" else tool.get("parameters") or {}
        function = {
            "name": _name(namespace, name),
            "description": tool.get("description") or "",
            "parameters": parameters,
        }
        found.append({"type": "function", "function": function})
    return found


def _name(namespace: Any, name: str) -> str:
    return f"{namespace}__{name}" if isinstance(namespace, str) and namespace else name


def _max_tokens(value: Any) -> int | None:
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
        raise BadRequest("max_output_tokens must be a whole number of at least 1", "max_output_tokens")
    return value

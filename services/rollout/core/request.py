"""A request in the form all wire formats share, and OpenAI's chat completions in it: what is wrong is said with its place, never a 500.

| there | here |
|---|---|
| roles developer and system | system messages where they stand |
| `reasoning_content`, `reasoning` of an assistant message | the turn's reasoning: shown to the template, means nothing else (normal.py) |
| `max_completion_tokens`, else `max_tokens` | the limit of the output |
| `stop`, `tool_choice`, `parallel_tool_calls` false, `response_format` | options.py |
| `n` other than 1, `logprobs`, `functions`, `audio`, parts that are no text | refused |
| `model`, `seed`, penalties, `user`, `metadata`, and what is unknown | no effect |
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from services.rollout.core.earlier import Input
from services.rollout.core.memory import KnownItems, Memory, once
from services.rollout.core.normal import Call, Message, canonical_json, merged
from services.rollout.core.options import (
    BadRequest,
    Tools,
    allowed_tools,
    checked_calls,
    clean,
    count,
    flag,
    forced_tool,
    json_instruction,
    json_object,
    number,
    object_or_none,
    stop_sequences,
    with_instruction,
)

ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant", "tool": "tool"}
MESSAGES_MAX = 20_000
TOOLS_MAX = 4096
"""Templates look at each, some ten microseconds long."""
MODEL_CHARS_MAX = 200
"""The alias is only said back."""


@dataclass(frozen=True, slots=True)
class ToolName:
    """How a wire format of other tools than plain functions names one."""

    name: str
    namespace: str = ""
    is_free_text: bool = False


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """What is used of a request."""

    messages: list[Message]
    tools: Tools = field(default_factory=list)
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    stream: bool = False
    include_usage: bool = False
    model: str = ""
    tool_names: dict[str, ToolName] = field(default_factory=dict)
    """Function → what the harness knows it as, where that is another name or form."""
    stop: tuple[str, ...] = ()
    force: str | None = None
    """The reply must begin with a call: of this tool, of any where it is empty. None: the model's own choice."""
    is_one_call: bool = False
    """The reply ends after its first tool call."""
    shows_reasoning: bool = True
    prefill: str = ""
    """What the reply must begin with: the harness's words, which nobody sampled and which are no part of what it is answered."""
    previous: str = ""
    """Id of the response that it goes on from, as it was sent."""
    input: Input | None = None
    """For the responses that may go on from it; None: there will be none."""

    def variant(self) -> str:
        """What tells two calls apart that have the same conversation: a retry has all of it in common."""
        return f"{self.max_tokens}/{self.temperature}/{self.top_p}/{self.stop}/{self.force}/{self.is_one_call}/{self.prefill}"


def parse_request(body: bytes, memory: Memory | None = None) -> ChatRequest:
    """Raises BadRequest."""
    data = json_object(body, memory, "messages")
    _refuse_unsupported(data)
    tools = once(data.get("tools"), tools_of)
    tools, force = _choice(data.get("tool_choice"), tools)
    options = object_or_none(data, "stream_options") or {}
    messages = conversation(data.get("messages"), "messages", _item)
    checked_calls(messages)
    return ChatRequest(
        messages=with_instruction(messages, json_instruction(data.get("response_format"), "response_format")),
        tools=tools, max_tokens=_max_tokens(data), temperature=number(data, "temperature", 0.0, 2.0), top_p=number(data, "top_p", 0.0, 1.0),
        stream=flag(data, "stream"), include_usage=flag(options, "include_usage"), model=alias(data), force=force,
        stop=stop_sequences(data.get("stop"), "stop"), is_one_call=not flag(data, "parallel_tool_calls", True),
    )  # fmt: skip


def conversation(
    items: Any, where: str, convert: Callable[[Any, str], Iterable[Message]], before: list[Message] | None = None
) -> list[Message]:
    """The messages of a request's list in normal form. Each item is converted by itself, what the session remembers is not. `before`: messages that
    the list goes on from, which are added to; its items are then read whole."""
    if not isinstance(items, list) or not items:
        raise BadRequest(f"{where} must be a list of at least one item", where)
    if len(items) > MESSAGES_MAX:
        raise BadRequest(f"{where}: {len(items)} items, at most {MESSAGES_MAX} are taken", where)
    if isinstance(items, KnownItems):
        return items.messages(where, convert)
    new = (message for index, item in enumerate(items) for message in convert(item, f"{where}[{index}]"))
    return merged(new, before)


def alias(data: dict[str, Any]) -> str:
    return clean(str(data.get("model") or "")[:MODEL_CHARS_MAX])


def tools_of(value: Any) -> Tools:
    """Tools of chat completions' form; a function without parameters takes none. Templates count on `properties`, which a schema need not have."""
    if value is None:
        return []
    if not isinstance(value, list):
        raise BadRequest("tools must be a list", "tools")
    if len(value) > TOOLS_MAX:
        raise BadRequest(f"tools: {len(value)} of them, at most {TOOLS_MAX} are taken", "tools")
    for index, tool in enumerate(value):
        function = tool.get("function") if isinstance(tool, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str) or not function["name"]:
            raise BadRequest(f"tools[{index}] must be of type function, with a name", f"tools[{index}]")
        parameters = {} if function.get("parameters") is None else function["parameters"]
        if not isinstance(parameters, dict):
            place = f"tools[{index}].function.parameters"
            raise BadRequest(f"{place} must be a JSON schema, an object", place)
        if parameters.get("type", "object") == "object" and "properties" not in parameters:
            function["parameters"] = {"type": "object", "properties": {}, **parameters}
    try:
        canonical_json(value).encode()
    except UnicodeEncodeError as error:
        raise BadRequest(f"tools must be Unicode text: {error.reason}", "tools") from error
    return value


def _refuse_unsupported(data: dict[str, Any]) -> None:
    """Options that would silently do nothing although the harness counts on them."""
    if data.get("n") is not None and (data["n"] != 1 or isinstance(data["n"], bool)):
        raise BadRequest("n must be 1: samples of a task are executions of their own", "n", "unsupported_value")
    if data.get("logprobs") or data.get("top_logprobs"):
        raise BadRequest(
            "log-probabilities are recorded by the gateway and not returned", "logprobs", "unsupported_parameter"
        )
    if data.get("functions") or data.get("function_call"):
        raise BadRequest("`functions` is not supported, use `tools`", "functions", "unsupported_parameter")
    if data.get("audio") or data.get("modalities") not in (None, ["text"]):
        raise BadRequest("this model says text only", "modalities", "unsupported_value")


def _choice(choice: Any, tools: Tools) -> tuple[Tools, str | None]:
    """Tools as the model is shown them, and the one that it must call."""
    match choice:
        case None | "auto":
            return tools, None
        case "none":
            return [], None
        case "required":
            return tools, forced_tool("", tools, "tool_choice")
        case {"type": "function", "function": {"name": str(name)}} if name:
            return tools, forced_tool(name, tools, "tool_choice")
        case {"type": "allowed_tools", "allowed_tools": dict(allowed)}:
            return allowed_tools(allowed.get("mode"), allowed.get("tools"), tools, "tool_choice")
    raise BadRequest(
        "tool_choice must be auto, none, required, allowed_tools, or a function by its name", "tool_choice", "unsupported_value"
    )  # fmt: skip


def _item(item: Any, where: str) -> list[Message]:
    if not isinstance(item, dict):
        raise BadRequest(f"{where} must be an object", where)
    said = item.get("role")
    if not isinstance(said, str) or said not in ROLES:
        raise BadRequest(f"{where}.role is {repr(said)[:80]}; known roles: {', '.join(ROLES)}", f"{where}.role")
    role = ROLES[said]
    content = _content(item.get("content"), f"{where}.content", is_optional=role in ("assistant", "tool"))
    if role == "tool":
        answered = item.get("tool_call_id")
        if not isinstance(answered, str):
            raise BadRequest(f"{where}.tool_call_id must say which call this answers", f"{where}.tool_call_id")
        return [Message("tool", content, tool_call_id=clean(answered))]
    if role != "assistant":
        return [Message(role, content)]
    for name in ("function_call", "audio"):
        if item.get(name):
            raise BadRequest(f"{where}.{name} is not supported", f"{where}.{name}", "unsupported_parameter")
    reasoning = item.get("reasoning_content") or item.get("reasoning")
    reasoning = clean(reasoning) if isinstance(reasoning, str) else ""
    return [Message(role, content, _calls(item.get("tool_calls"), f"{where}.tool_calls"), reasoning=reasoning)]


def _content(value: Any, where: str, is_optional: bool) -> str:
    if value is None and is_optional:
        return ""
    if isinstance(value, str):
        return clean(value)
    if not isinstance(value, list):
        raise BadRequest(f"{where} must be text or a list of parts", where)
    texts = []
    for index, part in enumerate(value):
        kind = part.get("type") if isinstance(part, dict) else None
        if kind == "refusal":
            continue
        if kind != "text" or not isinstance(part.get("text"), str):
            raise BadRequest(
                f"{where}[{index}] is of type {repr(kind)[:80]}: this model reads text only", f"{where}[{index}]"
            )
        texts.append(clean(part["text"]))
    return "".join(texts)


def _calls(value: Any, where: str) -> tuple[Call, ...]:
    if value is None:
        return ()
    if not isinstance(value, list):
        raise BadRequest(f"{where} must be a list", where)
    calls = []
    for index, item in enumerate(value):
        function = item.get("function") if isinstance(item, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            raise BadRequest(f"{where}[{index}] must have a function with a name", f"{where}[{index}]")
        arguments = function.get("arguments")
        if not isinstance(arguments, str):
            arguments = canonical_json(arguments) if arguments is not None else "{}"
        calls.append(Call(clean(str(item.get("id") or "")), clean(function["name"]), clean(arguments)))
    return tuple(calls)


def _max_tokens(data: dict[str, Any]) -> int | None:
    for name in ("max_completion_tokens", "max_tokens"):
        if data.get(name) is not None:
            return count(data[name], name)
    return None

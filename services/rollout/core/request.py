"""A chat-completions request, checked: what is wrong is said with its place, never a 500."""

import json
from dataclasses import dataclass, field
from typing import Any

from gyre.errors import InvalidInput
from services.rollout.core.normal import Call, Message, canonical_json, merged

ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant", "tool": "tool"}
MESSAGES_MAX = 20_000
MODEL_CHARS_MAX = 200
"""The alias is only said back."""


class BadRequest(InvalidInput):
    """`param` is the place, `error_code` OpenAI's word for it."""

    def __init__(self, message: str, param: str | None = None, error_code: str = "invalid_value") -> None:
        super().__init__(message)
        self.param = param
        self.error_code = error_code


@dataclass(frozen=True, slots=True)
class ToolName:
    """How a wire format of other tools than plain functions names one."""

    name: str
    namespace: str = ""
    is_free_text: bool = False


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """What is used of a request. Ignored: model (an alias), seed, penalties, user, metadata and everything unknown."""

    messages: list[Message]
    tools: list[dict[str, Any]] = field(default_factory=list)
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    stream: bool = False
    include_usage: bool = False
    model: str = ""
    tool_names: dict[str, ToolName] = field(default_factory=dict)
    """Function → what the harness knows it as, where that is another name or form."""

    def variant(self) -> str:
        """What tells two calls apart that have the same conversation: a retry has all of it in common."""
        return f"{self.max_tokens}/{self.temperature}/{self.top_p}"


def parse_request(body: bytes) -> ChatRequest:
    """Raises BadRequest."""
    data = json_object(body)
    _refuse_unsupported(data)
    tools = tools_of(data.get("tools"))
    if data.get("tool_choice") == "none":
        tools = []
    options = data.get("stream_options")
    return ChatRequest(
        messages=_messages(data.get("messages")), tools=tools,
        max_tokens=_max_tokens(data), temperature=number(data, "temperature", 0.0, 2.0), top_p=number(data, "top_p", 0.0, 1.0),
        stream=data.get("stream") is True, include_usage=isinstance(options, dict) and options.get("include_usage") is True,
        model=clean(str(data.get("model") or "")[:MODEL_CHARS_MAX]),
    )  # fmt: skip


def json_object(body: bytes) -> dict[str, Any]:
    """Raises BadRequest."""
    try:
        data = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"the body is not JSON: {error}", error_code="invalid_json") from error
    if not isinstance(data, dict):
        raise BadRequest("the body must be a JSON object", error_code="invalid_json")
    return data


def _refuse_unsupported(data: dict[str, Any]) -> None:
    """Options that would silently do nothing although the harness counts on them."""
    if data.get("n") not in (None, 1):
        raise BadRequest("n must be 1: samples of a task are executions of their own", "n", "unsupported_value")
    if data.get("stop"):
        raise BadRequest(
            "stop sequences are not supported; a turn ends at the model's end-of-turn token",
            "stop",
            "unsupported_parameter",
        )
    if data.get("logprobs") or data.get("top_logprobs"):
        raise BadRequest(
            "log-probabilities are recorded by the gateway and not returned", "logprobs", "unsupported_parameter"
        )
    wanted = data.get("response_format")
    if wanted is not None and not (isinstance(wanted, dict) and wanted.get("type") == "text"):
        raise BadRequest("only response_format of type text is supported", "response_format", "unsupported_value")
    if data.get("tool_choice") not in (None, "none", "auto"):
        raise BadRequest(
            "tool_choice must be auto or none: sampling is never constrained", "tool_choice", "unsupported_value"
        )
    if data.get("functions"):
        raise BadRequest("`functions` is not supported, use `tools`", "functions", "unsupported_parameter")


def _messages(value: Any) -> list[Message]:
    if not isinstance(value, list) or not value:
        raise BadRequest("messages must be a list of at least one message", "messages")
    if len(value) > MESSAGES_MAX:
        raise BadRequest(f"{len(value)} messages, at most {MESSAGES_MAX} are taken", "messages")
    return merged([_message(item, f"messages[{index}]") for index, item in enumerate(value)])


def _message(item: Any, where: str) -> Message:
    if not isinstance(item, dict):
        raise BadRequest(f"{where} must be an object", where)
    said = item.get("role")
    if not isinstance(said, str) or said not in ROLES:
        raise BadRequest(f"{where}.role is {repr(said)[:80]}; known roles: {', '.join(ROLES)}", f"{where}.role")
    role = ROLES[said]
    calls = _calls(item.get("tool_calls"), f"{where}.tool_calls") if role == "assistant" else ()
    answered = item.get("tool_call_id")
    if role == "tool" and not isinstance(answered, str):
        raise BadRequest(f"{where}.tool_call_id must say which call this answers", f"{where}.tool_call_id")
    return Message(
        role, _content(item.get("content"), f"{where}.content"), calls, clean(answered) if role == "tool" else ""
    )


def _content(value: Any, where: str) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return clean(value)
    if not isinstance(value, list):
        raise BadRequest(f"{where} must be text, a list of parts, or null", where)
    texts = []
    for index, part in enumerate(value):
        kind = part.get("type") if isinstance(part, dict) else None
        if kind == "refusal":
            continue
        if kind != "text" or not isinstance(part.get("text"), str):
            raise BadRequest(
                f"{where}[{index}] must be a part of type text: this model reads text only", f"{where}[{index}]"
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
        calls.append(Call(str(item.get("id") or ""), clean(function["name"]), clean(arguments)))
    return tuple(calls)


def tools_of(value: Any) -> list[dict[str, Any]]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise BadRequest("tools must be a list", "tools")
    for index, tool in enumerate(value):
        function = tool.get("function") if isinstance(tool, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            raise BadRequest(f"tools[{index}] must be of type function, with a name", f"tools[{index}]")
    try:
        canonical_json(value).encode()
    except UnicodeEncodeError as error:
        raise BadRequest(f"tools must be Unicode text: {error.reason}", "tools") from error
    return value


def _max_tokens(data: dict[str, Any]) -> int | None:
    for name in ("max_completion_tokens", "max_tokens"):
        value = data.get(name)
        if value is not None:
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise BadRequest(f"{name} must be a whole number of at least 1", name)
            return value
    return None


def number(data: dict[str, Any], name: str, low: float, high: float) -> float | None:
    value = data.get(name)
    if value is None:
        return None
    if not isinstance(value, int | float) or isinstance(value, bool) or not low <= value <= high:
        raise BadRequest(f"{name} must be a number from {low:g} to {high:g}", name)
    return float(value)


def clean(text: str) -> str:
    """Lone surrogates (JSON can carry them, UTF-8 cannot) become question marks."""
    try:
        text.encode()
        return text
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace").decode()

"""A request of Anthropic's messages API in the normal form that all wire formats share; what is wrong is said with its place.

| there | here |
|---|---|
| `system`: text or text blocks | the first message, blocks joined by a line break |
| a message of role `system` | a system message where it stands |
| `tool_use` blocks | the assistant message's calls |
| `tool_result` blocks | tool messages, before the text of the same user message |
| `thinking`, `redacted_thinking` | gone: reasoning means nothing (normal.py) |
| tools with `input_schema` | functions with `parameters` |
| tools of Anthropic's servers (a `type` that is not `custom`) | left out: nobody here runs them |
| `output_config`, `thinking`, `context_management`, `metadata`, `cache_control`, `top_k` | no effect: sampling is never constrained |
"""

from typing import Any

from services.rollout.core.normal import Call, Message, canonical_json, merged
from services.rollout.core.request import (
    MESSAGES_MAX,
    MODEL_CHARS_MAX,
    BadRequest,
    ChatRequest,
    clean,
    json_object,
    number,
    tools_of,
)


def parse_messages_request(body: bytes, is_count: bool = False) -> ChatRequest:
    """`is_count`: a request to count its tokens, which names no max_tokens. Raises BadRequest."""
    data = json_object(body)
    if data.get("stop_sequences"):
        raise BadRequest(
            "stop sequences are not supported; a turn ends at the model's end-of-turn token",
            "stop_sequences",
            "unsupported_parameter",
        )
    choice = data.get("tool_choice")
    kind = choice.get("type") if isinstance(choice, dict) else None
    if choice is not None and kind not in ("auto", "none"):
        raise BadRequest(
            "tool_choice must be auto or none: sampling is never constrained", "tool_choice", "unsupported_value"
        )
    return ChatRequest(
        messages=merged(_system(data.get("system")) + _messages(data.get("messages"))),
        tools=[] if kind == "none" else _tools(data.get("tools")),
        max_tokens=None if is_count else _max_tokens(data.get("max_tokens")),
        temperature=number(data, "temperature", 0.0, 1.0), top_p=number(data, "top_p", 0.0, 1.0),
        stream=data.get("stream") is True, include_usage=True,
        model=clean(str(data.get("model") or "")[:MODEL_CHARS_MAX]),
    )  # fmt: skip


def _system(value: Any) -> list[Message]:
    text = _text(value, "system") if value is not None else ""
    return [Message("system", text)] if text else []


def _messages(value: Any) -> list[Message]:
    if not isinstance(value, list) or not value:
        raise BadRequest("messages must be a list of at least one message", "messages")
    if len(value) > MESSAGES_MAX:
        raise BadRequest(f"{len(value)} messages, at most {MESSAGES_MAX} are taken", "messages")
    found: list[Message] = []
    for index, item in enumerate(value):
        where = f"messages[{index}]"
        if not isinstance(item, dict):
            raise BadRequest(f"{where} must be an object", where)
        match item.get("role"):
            case "user":
                found += _user(item.get("content"), f"{where}.content")
            case "assistant":
                found.append(_assistant(item.get("content"), f"{where}.content"))
            case "system":
                found.append(Message("system", _text(item.get("content"), f"{where}.content")))
            case said:
                raise BadRequest(
                    f"{where}.role is {repr(said)[:80]}; known roles: user, assistant, system", f"{where}.role"
                )
    return found


def _user(content: Any, where: str) -> list[Message]:
    """Results of tools first: they answer the turn before, and the text speaks after them."""
    results, rest = [], []
    for index, block in enumerate(_blocks(content, where)):
        if block.get("type") != "tool_result":
            rest.append(block)
            continue
        place = f"{where}[{index}]"
        answered = block.get("tool_use_id")
        if not isinstance(answered, str):
            raise BadRequest(f"{place}.tool_use_id must say which call this answers", f"{place}.tool_use_id")
        said = block.get("content")
        results.append(
            Message("tool", _text("" if said is None else said, f"{place}.content"), tool_call_id=clean(answered))
        )
    if rest or not results:
        results.append(Message("user", _text(rest, where)))
    return results


def _assistant(content: Any, where: str) -> Message:
    texts, calls = [], []
    for index, block in enumerate(_blocks(content, where)):
        place = f"{where}[{index}]"
        match block.get("type"):
            case "thinking" | "redacted_thinking":
                continue
            case "tool_use":
                name = block.get("name")
                if not isinstance(name, str):
                    raise BadRequest(f"{place} must have a name", place)
                arguments = clean(canonical_json(block.get("input") if block.get("input") is not None else {}))
                calls.append(Call(str(block.get("id") or ""), clean(name), arguments))
            case _:
                texts.append(_text([block], place))
    return Message("assistant", "\n".join(texts), tuple(calls))


def _blocks(content: Any, where: str) -> list[dict[str, Any]]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    if not isinstance(content, list) or not all(isinstance(block, dict) for block in content):
        raise BadRequest(f"{where} must be text or a list of blocks", where)
    return content


def _text(content: Any, where: str) -> str:
    """Of text blocks only."""
    texts = []
    for index, block in enumerate(_blocks(content, where)):
        if block.get("type") != "text" or not isinstance(block.get("text"), str):
            raise BadRequest(
                f"{where}[{index}] is of type {repr(block.get('type'))[:80]}: this model reads text only",
                f"{where}[{index}]",
            )
        texts.append(clean(block["text"]))
    return "\n".join(texts)


def _tools(value: Any) -> list[dict[str, Any]]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise BadRequest("tools must be a list", "tools")
    own = [tool for tool in value if not isinstance(tool, dict) or tool.get("type") in (None, "custom")]
    for index, tool in enumerate(own):
        if not isinstance(tool, dict) or not isinstance(tool.get("name"), str):
            raise BadRequest(f"tools[{index}] must have a name", f"tools[{index}]")
    functions = [
        {
            "name": tool["name"],
            "description": tool.get("description") or "",
            "parameters": tool.get("input_schema") or {},
        }
        for tool in own
    ]
    return tools_of([{"type": "function", "function": function} for function in functions])


def _max_tokens(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise BadRequest("max_tokens must be a whole number of at least 1", "max_tokens")
    return value

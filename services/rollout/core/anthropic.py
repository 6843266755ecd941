"""A request of Anthropic's messages API in the normal form that all wire formats share; what is wrong is said with its place.

| there | here |
|---|---|
| `system`: text or text blocks | the first message, blocks joined by a line break |
| a message of role `system` | a system message where it stands |
| `tool_use` blocks | the assistant message's calls |
| `tool_result` blocks | tool messages, before the text of the same user message |
| `document` blocks of text, `search_result` blocks | their title, source and text |
| `thinking` blocks | the turn's reasoning: shown to the template, means nothing else (normal.py) |
| `redacted_thinking` blocks | gone |
| tools with `input_schema` | functions with `parameters` |
| tools with a `type` of Anthropic's | anthropic_tools.py |
| text of an assistant's message at the end | what the reply goes on from |
| `thinking` enabled or adaptive | the reply's reasoning is shown, else it is kept back |
| `stop_sequences`, `tool_choice`, `disable_parallel_tool_use`, `output_config.format`, `output_format` | options.py |
| `context_management`, `output_config.effort`, `metadata`, `cache_control`, `top_k`, `service_tier` | no effect |
"""

from typing import Any

from services.rollout.core.anthropic_tools import own_form
from services.rollout.core.families import QWEN
from services.rollout.core.memory import KnownItems, Memory, once
from services.rollout.core.normal import Call, Message, canonical_json
from services.rollout.core.options import (
    BadRequest,
    Tools,
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
from services.rollout.core.request import ChatRequest, alias, conversation, tools_of


def parse_messages_request(body: bytes, memory: Memory | None = None, is_count: bool = False) -> ChatRequest:
    """`is_count`: a request to count its tokens, which names no max_tokens. Raises BadRequest."""
    data = json_object(body, memory, "messages")
    tools, force, is_one_call = _choice(object_or_none(data, "tool_choice"), once(data.get("tools"), _tools))
    messages = _system(data.get("system")) + conversation(data.get("messages"), "messages", _item)
    checked_calls(messages)
    messages, prefill = _prefill(messages, data["messages"], force)
    thinking = object_or_none(data, "thinking") or {}
    return ChatRequest(
        messages=with_instruction(messages, _form(data)), tools=tools,
        max_tokens=None if is_count else count(data.get("max_tokens"), "max_tokens"),
        temperature=number(data, "temperature", 0.0, 1.0), top_p=number(data, "top_p", 0.0, 1.0),
        stream=flag(data, "stream"), include_usage=True, model=alias(data), force=force, is_one_call=is_one_call,
        stop=stop_sequences(data.get("stop_sequences"), "stop_sequences"),
        shows_reasoning=thinking.get("type") in ("enabled", "adaptive"), prefill=prefill,
    )  # fmt: skip


def _prefill(messages: list[Message], items: list[Any], force: str | None) -> tuple[list[Message], str]:
    """What stands before the reply, and what the reply goes on from: the text of an assistant's message at the end."""
    if messages[-1].role != "assistant" or messages[-1].calls or len(messages) == 1:
        return messages, ""
    text, place = messages[-1].content, f"messages[{len(items) - 1}]"
    if force is not None:
        raise BadRequest(f"{place}: a reply cannot go on from this text and be the call of a tool", "tool_choice")
    if any(mark in text for mark in QWEN.marks):
        raise BadRequest(f"{place}: a reply cannot go on from the model's own marks", place)
    last = items.last() if isinstance(items, KnownItems) else items[-1]
    said = _assistant(last.get("content"), f"{place}.content").content
    if said != said.rstrip():
        raise BadRequest(f"{place}: the assistant's last words cannot end with white space", place)
    return messages[:-1], text


def _choice(choice: dict[str, Any] | None, tools: Tools) -> tuple[Tools, str | None, bool]:
    """Tools as the model is shown them, the one that it must call, and whether one call is the most."""
    choice = choice or {"type": "auto"}
    is_one_call = flag(choice, "disable_parallel_tool_use")
    match choice:
        case {"type": "auto"}:
            return tools, None, is_one_call
        case {"type": "none"}:
            return [], None, is_one_call
        case {"type": "any"}:
            return tools, forced_tool("", tools, "tool_choice"), is_one_call
        case {"type": "tool", "name": str(name)} if name:
            return tools, forced_tool(name, tools, "tool_choice"), is_one_call
    raise BadRequest(
        "tool_choice.type must be auto, none, any, or tool with a name", "tool_choice", "unsupported_value"
    )


def _form(data: dict[str, Any]) -> str:
    if (form := (object_or_none(data, "output_config") or {}).get("format")) is not None:
        return json_instruction(form, "output_config.format")
    return json_instruction(data.get("output_format"), "output_format")


def _system(value: Any) -> list[Message]:
    text = _text(value, "system") if value is not None else ""
    return [Message("system", text)] if text else []


def _item(item: Any, where: str) -> list[Message]:
    if not isinstance(item, dict):
        raise BadRequest(f"{where} must be an object", where)
    match item.get("role"):
        case "user":
            return _user(item.get("content"), f"{where}.content")
        case "assistant":
            return [_assistant(item.get("content"), f"{where}.content")]
        case "system":
            return [Message("system", _text(item.get("content"), f"{where}.content"))]
        case said:
            raise BadRequest(
                f"{where}.role is {repr(said)[:80]}; known roles: user, assistant, system", f"{where}.role"
            )


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
    texts, calls, thoughts = [], [], []
    for index, block in enumerate(_blocks(content, where)):
        place = f"{where}[{index}]"
        match block.get("type"):
            case "thinking":
                thoughts.append(clean(block["thinking"]) if isinstance(block.get("thinking"), str) else "")
            case "redacted_thinking":
                continue
            case "tool_use":
                name = block.get("name")
                if not isinstance(name, str):
                    raise BadRequest(f"{place} must have a name", place)
                arguments = clean(canonical_json(block.get("input") if block.get("input") is not None else {}))
                calls.append(Call(clean(str(block.get("id") or "")), clean(name), arguments))
            case _:
                texts.append(_text([block], place))
    return Message("assistant", "\n".join(texts), tuple(calls), reasoning="\n".join(thoughts))


def _blocks(content: Any, where: str) -> list[dict[str, Any]]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    if not isinstance(content, list) or not all(isinstance(block, dict) for block in content):
        raise BadRequest(f"{where} must be text or a list of blocks", where)
    return content


def _text(content: Any, where: str) -> str:
    """Of text blocks, and of documents and search results that are text."""
    return "\n".join(_block_text(block, f"{where}[{index}]") for index, block in enumerate(_blocks(content, where)))


def _block_text(block: dict[str, Any], place: str) -> str:
    match block:
        case {"type": "text", "text": str(text)}:
            return clean(text)
        case {"type": "document", "source": {"type": "text", "data": str(text)}}:
            return _titled(block, clean(text))
        case {"type": "document", "source": {"type": "content", "content": inside}}:
            return _titled(block, _text(inside, f"{place}.source.content"))
        case {"type": "search_result", "source": str(source), "content": list(inside)}:
            return _titled(block, f"{clean(source)}\n{_text(inside, f'{place}.content')}")
    raise BadRequest(f"{place} is of type {repr(block.get('type'))[:80]}: this model reads text only", place)


def _titled(block: dict[str, Any], text: str) -> str:
    title = block.get("title")
    return f"{clean(title)}\n{text}" if isinstance(title, str) and title else text


def _tools(value: Any) -> Tools:
    if value is None:
        return []
    if not isinstance(value, list):
        raise BadRequest("tools must be a list", "tools")
    functions = []
    for index, tool in enumerate(value):
        if not isinstance(tool, dict) or not isinstance(tool.get("name", ""), str):
            raise BadRequest(f"tools[{index}] must be an object with a name", f"tools[{index}]")
        if (own := own_form(tool, f"tools[{index}]")) is None:
            continue
        if not own.get("name"):
            raise BadRequest(f"tools[{index}] must have a name", f"tools[{index}]")
        parameters = own.get("input_schema") or None
        functions.append({"name": own["name"], "description": own.get("description") or "", "parameters": parameters})
    return tools_of([{"type": "function", "function": function} for function in functions])

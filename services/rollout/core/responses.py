"""A request of OpenAI's responses API in the normal form that all wire formats share; what is wrong is said with its place.

| there | here |
|---|---|
| `instructions` | the first message |
| `message` items of role developer or system | system messages where they stand |
| `function_call`, `custom_tool_call` items | calls of the assistant message they belong to; free text becomes `{"input": text}` |
| their `_output` items | tool messages |
| `reasoning` items | their text is the turn's reasoning: shown to the template, means nothing else (normal.py) |
| `web_search_call` items | gone: searches are run by nobody here |
| a `namespace` of tools | its tools, named `namespace__name` |
| `custom` tools (free text) | functions of one text, `input` |
| built-in tools (`web_search` and others) | left out: nobody here runs them |
| `max_output_tokens`, `tool_choice`, `parallel_tool_calls` false, `text.format` | options.py |
| tools that the harness runs without a schema (`shell`, `apply_patch`, `computer` and others) | refused: a call of them has a form of its own |
| `item_reference` items | what this session's reply of that name said |
| `previous_response_id` | that response's input and reply before the new input, while the session remembers them (earlier.py); `instructions` anew |
| `store` false | this response's input is not remembered |
| `conversation`, `background`, `prompt` | refused: nothing else is stored |
| `top_logprobs`, log-probabilities in `include` | refused |
| `reasoning`, other `include`, `text.verbosity`, `truncation`, `metadata` | no effect |
"""

import json
from functools import partial
from typing import Any

from services.rollout.core.earlier import Input
from services.rollout.core.memory import Memory
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
    with_instruction,
)
from services.rollout.core.request import MESSAGES_MAX, ROLES, ChatRequest, ToolName, alias, conversation, tools_of

_OF_THE_HARNESS = ("local_shell", "shell", "apply_patch", "computer", "computer_use_preview")
_FREE_TEXT = {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}


def parse_responses_request(body: bytes, memory: Memory | None = None) -> ChatRequest:
    """Raises BadRequest."""
    data = json_object(body, memory, "input")
    if data.get("previous_response_id"):
        data = json_object(body)  # what the session remembers of lists like this one stood behind nothing
    _refuse_unsupported(data)
    names: dict[str, ToolName] = {}
    tools, force = _choice(data.get("tool_choice"), tools_of(_tools(data.get("tools"), "tools", names)))
    asked = _asked(data, memory, len(body))
    messages = _instructions(data.get("instructions")) + asked.messages
    if not messages:
        raise BadRequest("input must hold at least one message", "input")
    checked_calls(messages)
    form = json_instruction((object_or_none(data, "text") or {}).get("format"), "text.format")
    limit = data.get("max_output_tokens")
    return ChatRequest(
        messages=with_instruction(messages, form), tools=tools, max_tokens=None if limit is None else count(limit, "max_output_tokens"),
        temperature=number(data, "temperature", 0.0, 2.0), top_p=number(data, "top_p", 0.0, 1.0),
        stream=flag(data, "stream"), include_usage=True, model=alias(data), tool_names=names, force=force,
        is_one_call=not flag(data, "parallel_tool_calls", True), previous=data.get("previous_response_id") or "",
        input=asked if flag(data, "store", True) else None,
    )  # fmt: skip


def _refuse_unsupported(data: dict[str, Any]) -> None:
    for name in ("conversation", "background", "prompt"):
        if data.get(name):
            raise BadRequest(
                f"{name}: nothing of that kind is stored here, send the conversation as input",
                name,
                "unsupported_parameter",
            )
    include = data.get("include")
    if data.get("top_logprobs") or (isinstance(include, list) and "message.output_text.logprobs" in include):
        raise BadRequest(
            "log-probabilities are recorded by the gateway and not returned", "top_logprobs", "unsupported_parameter"
        )


def _choice(choice: Any, tools: Tools) -> tuple[Tools, str | None]:
    """Tools as the model is shown them, and the one that it must call."""
    match choice:
        case None | "auto":
            return tools, None
        case "none":
            return [], None
        case "required":
            return tools, forced_tool("", tools, "tool_choice")
        case {"type": "function" | "custom", "name": str(name)} if name:
            return tools, forced_tool(_name(choice.get("namespace"), name), tools, "tool_choice")
        case {"type": "allowed_tools"}:
            return allowed_tools(choice.get("mode"), choice.get("tools"), tools, "tool_choice")
    raise BadRequest(
        "tool_choice must be auto, none, required, allowed_tools, or a function or custom tool by its name", "tool_choice", "unsupported_value"
    )  # fmt: skip


def _instructions(value: Any) -> list[Message]:
    if value is None or value == "":
        return []
    if not isinstance(value, str):
        raise BadRequest("instructions must be text", "instructions")
    return [Message("system", clean(value))]


def _asked(data: dict[str, Any], memory: Memory | None, size: int) -> Input:
    """The whole input, of which an earlier response's may not be sent again."""
    previous, value = data.get("previous_response_id"), data.get("input")
    name, before = _goes_on(previous, memory) if previous else ("", None)
    if isinstance(value, str):
        messages = [*(before or ()), Message("user", clean(value))]
    elif before is not None and (value is None or value == []):
        messages = before
    else:
        messages = conversation(value, "input", partial(_item, memory=memory, referred=set()), before)
    if len(messages) > MESSAGES_MAX:
        raise BadRequest(
            f"input: {len(messages)} messages with those before, at most {MESSAGES_MAX} are taken", "input"
        )
    return Input(messages, name, size)


def _goes_on(previous: Any, memory: Memory | None) -> tuple[str, list[Message]]:
    """The call of an earlier response, and its input and reply as they would be sent."""
    where = "previous_response_id"
    if not isinstance(previous, str):
        raise BadRequest(f"{where} must be the id of a response", where)
    kind, _, name = previous.partition("_")
    reply = memory.recall(name) if memory is not None and kind == "resp" else None
    before = memory.earlier.messages(name) if memory is not None and reply is not None else None
    if reply is None or before is None:
        said = f"Previous response with id {repr(clean(previous))[:80]} not found: send the whole conversation as input"
        raise BadRequest(said, where, "previous_response_not_found")
    parts = [Message("assistant", "", reasoning=reply.reasoning)] if reply.reasoning else []
    if reply.content or not reply.calls:
        parts.append(Message("assistant", reply.content))
    parts += [Message("assistant", "", (call,)) for call in reply.calls]
    return name, merged(parts, before)


def _item(item: Any, where: str, memory: Memory | None, referred: set[str]) -> list[Message]:
    """None at all for what is gone. `referred`: ids of earlier items that were referred to before this one."""
    if not isinstance(item, dict):
        raise BadRequest(f"{where} must be an object", where)
    kind = item.get("type")
    if kind is None:
        kind = "item_reference" if isinstance(item.get("id"), str) and "role" not in item else "message"
    match kind:
        case "item_reference":
            return [_said_before(item.get("id"), where, memory, referred)]
        case "message":
            return [_message(item, where)]
        case "function_call" | "custom_tool_call" as kind:
            return [Message("assistant", "", (_call(item, kind, where, memory),))]
        case "function_call_output" | "custom_tool_call_output":
            answered = item.get("call_id")
            if not isinstance(answered, str):
                raise BadRequest(f"{where}.call_id must say which call this answers", f"{where}.call_id")
            return [Message("tool", _text(item.get("output"), f"{where}.output"), tool_call_id=clean(answered))]
        case "reasoning":
            parts = item.get("content") if isinstance(item.get("content"), list) else []
            texts = [part["text"] for part in parts if isinstance(part, dict) and isinstance(part.get("text"), str)]
            return [Message("assistant", "", reasoning=clean("\n".join(texts)))] if texts else []
        case "web_search_call":
            return []
        case kind:
            raise BadRequest(
                f"{where} is of type {repr(kind)[:80]}, which is not supported", where, "unsupported_value"
            )


def _said_before(item_id: Any, where: str, memory: Memory | None, referred: set[str]) -> Message:
    """A part of an earlier reply, by the id that it was given there (responses_reply.py). Each once, as OpenAI has it: to read one again is no
    small thing."""
    if not isinstance(item_id, str) or item_id in referred:
        raise BadRequest(f"{where}.id must be the id of an item, of each only once", f"{where}.id")
    referred.add(item_id)
    kind, _, name = item_id.partition("_")
    reply = memory.recall(name) if memory is not None else None
    if reply is not None:
        match kind:
            case "msg":
                return Message("assistant", reply.content)
            case "rs":
                return Message("assistant", "", reasoning=reply.reasoning)
            case "fc":
                return Message("assistant", "", tuple(call for call in reply.calls if call.call_id == name))
    raise BadRequest(f"{where}: item {repr(item_id)[:80]} was not said in this execution", f"{where}.id")


def free_text(arguments: str) -> str:
    """What a call of a free-text tool is said as: its `input`; all arguments where that is no text."""
    text = json.loads(arguments or "{}").get("input")
    return clean(text) if isinstance(text, str) else arguments


def _call(item: dict[str, Any], kind: str, where: str, memory: Memory | None) -> Call:
    name = item.get("name")
    if not isinstance(name, str):
        raise BadRequest(f"{where} must have a name", where)
    said = item.get("arguments" if kind == "function_call" else "input")
    arguments = said if isinstance(said, str) else canonical_json(said if said is not None else {})
    if kind == "custom_tool_call":
        own = memory.payloads.get(str(item.get("call_id"))) if memory is not None else None
        is_own = own is not None and free_text(own) == arguments
        arguments = own if is_own else canonical_json({"input": arguments})  # the model may have said more than that
    return Call(clean(str(item.get("call_id") or "")), clean(_name(item.get("namespace"), name)), clean(arguments))


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


def _tools(value: Any, where: str, names: dict[str, ToolName], namespace: str = "") -> Tools:
    """Functions in chat completions' form; `names` takes up what they were."""
    if value is None:
        return []
    if not isinstance(value, list):
        raise BadRequest(f"{where} must be a list", where)
    found: Tools = []
    for index, tool in enumerate(value):
        place = f"{where}[{index}]"
        kind = tool.get("type") if isinstance(tool, dict) else None
        if kind in _OF_THE_HARNESS:
            raise BadRequest(f"{place} is of type {kind}: offer a function instead", place, "unsupported_value")
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
        parameters = _FREE_TEXT if kind == "custom" else tool.get("parameters") or None
        function = {
            "name": _name(namespace, name),
            "description": tool.get("description") or "",
            "parameters": parameters,
        }
        found.append({"type": "function", "function": function})
    return found


def _name(namespace: Any, name: str) -> str:
    return f"{namespace}__{name}" if isinstance(namespace, str) and namespace else name

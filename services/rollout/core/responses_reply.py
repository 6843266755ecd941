"""Replies of OpenAI's responses API: plain, streamed whole, errors in a stream.

A call's name and arguments are said as the request's tools had them: with their namespace, free text for free-text tools.
"""

import json
from typing import Any

from services.rollout.core.normal import Call
from services.rollout.core.reply import Reply
from services.rollout.core.request import ChatRequest, ToolName


def response_body(reply: Reply, request: ChatRequest) -> dict[str, Any]:
    """A finished response. Reasoning is kept back: what a harness could send back of it would mean nothing here."""
    status = "incomplete" if reply.finish_reason == "length" else "completed"
    details = {"reason": "max_output_tokens"} if status == "incomplete" else None
    return _head(reply, status) | {
        "incomplete_details": details,
        "output": _items(reply, request),
        "usage": _usage(reply),
    }


def response_events(reply: Reply, _sent: str, request: ChatRequest) -> bytes:
    """A whole response as a stream: every item in one delta."""
    body = response_body(reply, request)
    begun = _head(reply, "in_progress") | {"incomplete_details": None, "output": [], "usage": None}
    events = [{"type": "response.created", "response": begun}, {"type": "response.in_progress", "response": begun}]
    for index, item in enumerate(body["output"]):
        events += _item_events(index, item)
    events.append({"type": f"response.{body['status']}", "response": body})
    return b"".join(_event(event | {"sequence_number": number}) for number, event in enumerate(events))


def response_error_event(body: dict[str, Any]) -> bytes:
    error = body["error"]
    event = {"type": "error", "code": error["code"], "message": error["message"], "param": error["param"]}
    return _event(event | {"sequence_number": 0})


def _head(reply: Reply, status: str) -> dict[str, Any]:
    return {
        "id": f"resp_{reply.call_id}", "object": "response", "created_at": reply.created_s, "status": status, "error": None,
        "model": reply.model, "parallel_tool_calls": True, "tool_choice": "auto", "tools": [], "store": False,
    }  # fmt: skip


def _usage(reply: Reply) -> dict[str, Any]:
    return {
        "input_tokens": reply.prompt_tokens,
        "input_tokens_details": {"cached_tokens": reply.cached_tokens, "cache_write_tokens": 0},
        "output_tokens": reply.output_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": reply.prompt_tokens + reply.output_tokens,
    }


def _items(reply: Reply, request: ChatRequest) -> list[dict[str, Any]]:
    parsed, items = reply.parsed, []
    if parsed.content or not parsed.calls:
        part = {"type": "output_text", "text": parsed.content, "annotations": []}
        items.append(
            {
                "type": "message",
                "id": f"msg_{reply.call_id}",
                "role": "assistant",
                "status": "completed",
                "content": [part],
            }
        )
    return items + [_call_item(call, request.tool_names.get(call.name)) for call in parsed.calls]


def _call_item(call: Call, said: ToolName | None) -> dict[str, Any]:
    item = {
        "id": f"fc_{call.call_id}",
        "status": "completed",
        "call_id": call.call_id,
        "name": said.name if said else call.name,
    }
    if said and said.namespace:
        item["namespace"] = said.namespace
    if said and said.is_free_text:
        text = json.loads(call.arguments or "{}").get("input")
        return {"type": "custom_tool_call", **item, "input": text if isinstance(text, str) else call.arguments}
    return {"type": "function_call", **item, "arguments": call.arguments}


def _item_events(index: int, item: dict[str, Any]) -> list[dict[str, Any]]:
    place = {"item_id": item["id"], "output_index": index}
    match item["type"]:
        case "message":
            (part,) = item["content"]
            inside = place | {"content_index": 0}
            empty, middle = {"content": []}, [
                {"type": "response.content_part.added", **inside, "part": part | {"text": ""}},
                {"type": "response.output_text.delta", **inside, "delta": part["text"], "logprobs": []},
                {"type": "response.output_text.done", **inside, "text": part["text"], "logprobs": []},
                {"type": "response.content_part.done", **inside, "part": part},
            ]  # fmt: skip
        case "custom_tool_call":
            empty, middle = {"input": ""}, [
                {"type": "response.custom_tool_call_input.delta", **place, "delta": item["input"]},
                {"type": "response.custom_tool_call_input.done", **place, "input": item["input"]},
            ]  # fmt: skip
        case _:
            arguments = {"name": item["name"], "arguments": item["arguments"]}
            empty, middle = {"arguments": ""}, [
                {"type": "response.function_call_arguments.delta", **place, "delta": item["arguments"]},
                {"type": "response.function_call_arguments.done", **place, **arguments},
            ]  # fmt: skip
    return [
        {"type": "response.output_item.added", "output_index": index, "item": item | {"status": "in_progress"} | empty},
        *middle,
        {"type": "response.output_item.done", "output_index": index, "item": item},
    ]


def _event(body: dict[str, Any]) -> bytes:
    return f"event: {body['type']}\ndata: {json.dumps(body, separators=(',', ':'))}\n\n".encode()

"""Replies of OpenAI's responses API: plain, streamed, errors in a stream.

A call's name and arguments are said as the request's tools had them: with their namespace, free text for free-text tools.
"""

from typing import Any

from services.rollout.core.normal import Call
from services.rollout.core.reply import Head, Reply, named_event
from services.rollout.core.request import ChatRequest, ToolName
from services.rollout.core.responses import free_text

Item = dict[str, Any]

_OPENING = ("response.created", "response.in_progress")


def response_body(reply: Reply, request: ChatRequest) -> dict[str, Any]:
    """A finished response: reasoning, message, tool calls."""
    parsed, is_cut = reply.parsed, reply.finish_reason == "length"
    items: list[Item] = [_reasoning(reply.call_id, parsed.reasoning)] if parsed.reasoning else []
    if parsed.content or not parsed.calls:
        items.append(_message(reply.call_id, parsed.content, "incomplete" if is_cut else "completed"))
    items += [_call(call, request.tool_names.get(call.name)) for call in parsed.calls]
    return _response(reply, request, "incomplete" if is_cut else "completed") | {
        "incomplete_details": {"reason": "max_output_tokens"} if is_cut else None,
        "output": items,
        "usage": _usage(reply),
    }


class ResponseStream:
    """A response as events; a call's arguments come in one delta."""

    def __init__(self, head: Head, request: ChatRequest) -> None:
        self._head, self._request = head, request
        self._sequence = len(_OPENING)
        """Of the next event; the opening's are the first, whenever it is made."""
        self._index = -1
        self._open = ""
        """Kind of the open item: reasoning or message."""
        self._said = {"reasoning": "", "message": ""}

    def open(self) -> bytes:
        begun = _response(self._head, self._request, "in_progress")
        return b"".join(
            named_event({"type": kind, "response": begun, "sequence_number": number})
            for number, kind in enumerate(_OPENING)
        )

    def more(self, reasoning: str, content: str) -> bytes:
        return self._text("reasoning", reasoning) + self._text("message", content)

    def close(self, reply: Reply) -> bytes:
        body = response_body(reply, self._request)
        events = self.more(reply.parsed.reasoning, reply.parsed.content)
        for item in body["output"]:
            if item["type"] in ("reasoning", "message"):
                events += self._begin(item["type"]) + self._end(item)
            else:
                events += self._whole_call(item)
        return events + self._event(f"response.{body['status']}", response=body)

    def fail(self, body: dict[str, Any]) -> bytes:
        error = body["error"]
        return self._event("error", code=error["code"], message=error["message"], param=error["param"])

    def _text(self, kind: str, text: str) -> bytes:
        new = text[len(self._said[kind]) :]
        if not new:
            return b""
        events = self._begin(kind)
        self._said[kind] = text
        name, more = ("reasoning_text", {}) if kind == "reasoning" else ("output_text", {"logprobs": []})
        return events + self._event(f"response.{name}.delta", **self._place(), delta=new, **more)

    def _begin(self, kind: str) -> bytes:
        """Begin an item unless one of its kind is open or over."""
        if self._open == kind or (kind == "reasoning" and self._open == "message"):
            return b""
        events = b""
        if self._open == "reasoning":
            events = self._end(_reasoning(self._head.call_id, self._said["reasoning"]))
        self._index, self._open = self._index + 1, kind
        item = _reasoning(self._head.call_id, "") if kind == "reasoning" else _message(self._head.call_id, "", "")
        added = item | {"status": "in_progress", "content": []}
        events += self._event("response.output_item.added", output_index=self._index, item=added)
        return events + self._event("response.content_part.added", **self._place(), part=item["content"][0])

    def _end(self, item: Item) -> bytes:
        """End the open item, which has become this; nothing when it is over already."""
        if self._open != item["type"]:
            return b""
        (part,) = item["content"]
        name, more = ("reasoning_text", {}) if self._open == "reasoning" else ("output_text", {"logprobs": []})
        events = self._event(f"response.{name}.done", **self._place(), text=part["text"], **more)
        events += self._event("response.content_part.done", **self._place(), part=part)
        self._open = ""
        return events + self._event("response.output_item.done", output_index=self._index, item=item)

    def _whole_call(self, item: Item) -> bytes:
        self._index += 1
        place = {"item_id": item["id"], "output_index": self._index}
        if item["type"] == "custom_tool_call":
            name, empty, done = "custom_tool_call_input", {"input": ""}, {"input": item["input"]}
        else:
            name, empty = "function_call_arguments", {"arguments": ""}
            done = {"name": item["name"], "arguments": item["arguments"]}
        text = item["input" if "input" in empty else "arguments"]
        added = item | {"status": "in_progress"} | empty
        return (
            self._event("response.output_item.added", output_index=self._index, item=added)
            + self._event(f"response.{name}.delta", **place, delta=text)
            + self._event(f"response.{name}.done", **place, **done)
            + self._event("response.output_item.done", output_index=self._index, item=item)
        )

    def _place(self) -> dict[str, Any]:
        prefix = "rs" if self._open == "reasoning" else "msg"
        return {"item_id": f"{prefix}_{self._head.call_id}", "output_index": self._index, "content_index": 0}

    def _event(self, kind: str, **fields: Any) -> bytes:
        number, self._sequence = self._sequence, self._sequence + 1
        return named_event({"type": kind, **fields, "sequence_number": number})


def _response(head: Head | Reply, request: ChatRequest, status: str) -> dict[str, Any]:
    """One that has just begun."""
    return {
        "id": f"resp_{head.call_id}", "object": "response", "created_at": head.created_s, "status": status, "error": None,
        "incomplete_details": None, "model": head.model, "output": [], "parallel_tool_calls": not request.is_one_call,
        "tool_choice": "auto" if request.force is None else "required", "tools": [], "store": request.input is not None,
        "previous_response_id": request.previous or None, "usage": None,
    }  # fmt: skip


def _reasoning(call_id: str, text: str) -> Item:
    part = {"type": "reasoning_text", "text": text}
    return {"type": "reasoning", "id": f"rs_{call_id}", "status": "completed", "summary": [], "content": [part]}


def _message(call_id: str, text: str, status: str) -> Item:
    part = {"type": "output_text", "text": text, "annotations": []}
    return {"type": "message", "id": f"msg_{call_id}", "role": "assistant", "status": status, "content": [part]}


def _call(call: Call, said: ToolName | None) -> Item:
    item = {
        "id": f"fc_{call.call_id}",
        "status": "completed",
        "call_id": call.call_id,
        "name": said.name if said else call.name,
    }
    if said and said.namespace:
        item["namespace"] = said.namespace
    if said and said.is_free_text:
        return {"type": "custom_tool_call", **item, "input": free_text(call.arguments)}
    return {"type": "function_call", **item, "arguments": call.arguments}


def _usage(reply: Reply) -> dict[str, Any]:
    return {
        "input_tokens": reply.prompt_tokens,
        "input_tokens_details": {"cached_tokens": reply.cached_tokens, "cache_write_tokens": 0},
        "output_tokens": reply.output_tokens,
        "output_tokens_details": {"reasoning_tokens": reply.parsed.reasoning_tokens},
        "total_tokens": reply.prompt_tokens + reply.output_tokens,
    }

"""Replies of Anthropic's messages API: plain, streamed, errors.

Reasoning is shown to who asked for it (`thinking`): others take the first block for the text. Its signature is the call's name; nothing here
needs one, but clients want it there.
"""

import json
from typing import Any

from services.rollout.core.normal import Call, finite
from services.rollout.core.options import clean
from services.rollout.core.reply import Head, Reply, named_event
from services.rollout.core.request import ChatRequest

PING = named_event({"type": "ping"})

_STOP_REASONS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}
_ERROR_TYPES = {
    400: "invalid_request_error", 401: "authentication_error", 403: "permission_error", 404: "not_found_error",
    405: "invalid_request_error", 413: "request_too_large", 415: "invalid_request_error", 429: "rate_limit_error",
}  # fmt: skip


def message_body(reply: Reply, request: ChatRequest) -> dict[str, Any]:
    """A finished message: thinking, text, tool calls."""
    parsed, text = reply.parsed, reply.parsed.content[len(request.prefill) :]
    blocks: list[dict[str, Any]] = []
    if parsed.reasoning and request.shows_reasoning:
        blocks.append({"type": "thinking", "thinking": parsed.reasoning, "signature": reply.call_id})
    if text or not parsed.calls:
        blocks.append({"type": "text", "text": text})
    blocks += [_tool_use(call) for call in parsed.calls]
    body = _message(reply.call_id, reply.model, _usage_of(reply))
    return body | {"content": blocks} | _ending(reply)


class MessageStream:
    """A message as events; a call's input comes in one delta."""

    def __init__(self, head: Head, request: ChatRequest) -> None:
        self._head = head
        self._shows_reasoning = request.shows_reasoning
        self._given = len(request.prefill)
        self._reasoning, self._content = 0, self._given
        """Characters that are out."""
        self._index = -1
        self._open = ""
        """Kind of the open block."""

    def open(self) -> bytes:
        head = self._head
        usage = _usage(head.prompt_tokens)
        return named_event({"type": "message_start", "message": _message(head.call_id, head.model, usage)})

    def more(self, reasoning: str, content: str) -> bytes:
        events = b""
        if self._shows_reasoning and (new := reasoning[self._reasoning :]):
            self._reasoning = len(reasoning)
            events += self._block({"type": "thinking", "thinking": "", "signature": ""})
            events += self._delta({"type": "thinking_delta", "thinking": new})
        if new := content[self._content :]:
            self._content = len(content)
            events += self._block({"type": "text", "text": ""}) + self._delta({"type": "text_delta", "text": new})
        return events

    def close(self, reply: Reply) -> bytes:
        events = self.more(reply.parsed.reasoning, reply.parsed.content)
        if len(reply.parsed.content) <= self._given and not reply.parsed.calls:
            events += self._block({"type": "text", "text": ""})
        for call in reply.parsed.calls:
            block = _tool_use(call)
            events += self._stop() + self._block(block | {"input": {}})
            events += self._delta({"type": "input_json_delta", "partial_json": json.dumps(block["input"])})
        events += self._stop()
        events += named_event({"type": "message_delta", "delta": _ending(reply), "usage": _usage_of(reply)})
        return events + named_event({"type": "message_stop"})

    def fail(self, body: dict[str, Any]) -> bytes:
        return named_event(body)

    def _block(self, block: dict[str, Any]) -> bytes:
        """Begin a block unless one of its kind is open."""
        if self._open == block["type"]:
            return b""
        before, self._open = self._stop(), block["type"]
        self._index += 1
        return before + named_event({"type": "content_block_start", "index": self._index, "content_block": block})

    def _delta(self, delta: dict[str, Any]) -> bytes:
        return named_event({"type": "content_block_delta", "index": self._index, "delta": delta})

    def _stop(self) -> bytes:
        if not self._open:
            return b""
        signed = b""
        if self._open == "thinking":
            signed = self._delta({"type": "signature_delta", "signature": self._head.call_id})
        self._open = ""
        return signed + named_event({"type": "content_block_stop", "index": self._index})


def message_error(status: int, body: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "error",
        "error": {"type": _ERROR_TYPES.get(status, "api_error"), "message": body["error"]["message"]},
    }


def _message(call_id: str, model: str, usage: dict[str, Any]) -> dict[str, Any]:
    """One that has just begun."""
    return {
        "id": f"msg_{call_id}", "type": "message", "role": "assistant", "model": model, "content": [],
        "stop_reason": None, "stop_sequence": None, "usage": usage,
    }  # fmt: skip


def _ending(reply: Reply) -> dict[str, Any]:
    stop = reply.parsed.stop_sequence if reply.finish_reason == "stop" else ""
    return {"stop_reason": "stop_sequence" if stop else _STOP_REASONS[reply.finish_reason], "stop_sequence": stop or None}  # fmt: skip


def _tool_use(call: Call) -> dict[str, Any]:
    """Arguments are a JSON object, or the text would be no call (toolcalls.py). What they may hold and not every client's JSON does is said as text:
    numbers too large for one, half characters."""
    arguments = json.loads(call.arguments or "{}", parse_float=finite)
    if "\\u" in call.arguments:
        arguments = json.loads(clean(json.dumps(arguments, ensure_ascii=False)))
    return {"type": "tool_use", "id": call.call_id, "name": call.name, "input": arguments}


def _usage(
    prompt_tokens: int, cached_tokens: int = 0, output_tokens: int = 0, thinking_tokens: int = 0
) -> dict[str, Any]:
    """Cached tokens are not among `input_tokens`: the three sum up to the prompt."""
    return {
        "input_tokens": prompt_tokens - cached_tokens, "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": cached_tokens, "output_tokens": output_tokens,
        "output_tokens_details": {"thinking_tokens": thinking_tokens},
    }  # fmt: skip


def _usage_of(reply: Reply) -> dict[str, Any]:
    return _usage(reply.prompt_tokens, reply.cached_tokens, reply.output_tokens, reply.parsed.reasoning_tokens)

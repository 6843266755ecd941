"""The wire formats a model call may come in: how each is read, answered, streamed, refused.

| | CHAT | MESSAGES | RESPONSES |
|---|---|---|---|
| whose | OpenAI's chat completions | Anthropic's messages | OpenAI's responses |
| streams | content as soon as it is certain | the reply whole, when it is on record | as messages |

Claude Code gives up when a stream breaks off after its first content, and asks again when it breaks off before (docs/harnesses.md): so nothing
of a message is let out that a gateway's death could cut in two.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from services.rollout.core.anthropic import parse_messages_request
from services.rollout.core.reply import Reply, delta_event, error_event
from services.rollout.core.request import ChatRequest, parse_request
from services.rollout.core.responses import parse_responses_request
from services.rollout.core.responses_reply import response_body, response_error_event, response_events

_STOP_REASONS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}
_ERROR_TYPES = {
    400: "invalid_request_error", 401: "authentication_error", 403: "permission_error", 404: "not_found_error",
    413: "request_too_large", 429: "rate_limit_error",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Wire:
    """One wire format. Bytes are whole server-sent events."""

    endpoint: str
    """As rules for roles name it (classify.py)."""
    parse: Callable[[bytes], ChatRequest]
    """Raises BadRequest."""
    body: Callable[[Reply, ChatRequest], dict[str, Any]]
    """The plain reply."""
    opening: Callable[[str, str, int], bytes]
    """What a stream begins with, of (call id, model, created_s)."""
    delta: Callable[[str, str, int, str], bytes] | None
    """A piece of content, its text last; None where content is let out only whole."""
    closing: Callable[[Reply, str, ChatRequest], bytes]
    """The rest of a stream, of (reply, content that is out, request)."""
    error: Callable[[int, dict[str, Any]], dict[str, Any]]
    """An error's body, of (status, the body as OpenAI has it)."""
    error_event: Callable[[dict[str, Any]], bytes]
    """An error's body in a stream that has begun."""


def message_body(reply: Reply, _request: ChatRequest | None = None) -> dict[str, Any]:
    """A finished message: text, then tool calls. Reasoning is kept back: it would have to be signed."""
    parsed = reply.parsed
    text = [{"type": "text", "text": parsed.content}] if parsed.content or not parsed.calls else []
    calls = [
        {"type": "tool_use", "id": call.call_id, "name": call.name, "input": _object(call.arguments)}
        for call in parsed.calls
    ]
    return {
        "id": f"msg_{reply.call_id}", "type": "message", "role": "assistant", "model": reply.model, "content": text + calls,
        "stop_reason": _STOP_REASONS[reply.finish_reason], "stop_sequence": None, "usage": _usage(reply, reply.output_tokens),
    }  # fmt: skip


def message_events(reply: Reply, _sent: str = "", _request: ChatRequest | None = None) -> bytes:
    """A whole message as a stream: every block in one delta."""
    body = message_body(reply)
    empty = {**body, "content": [], "stop_reason": None, "usage": _usage(reply, 0)}
    events = [_event({"type": "message_start", "message": empty})]
    for index, block in enumerate(body["content"]):
        if block["type"] == "text":
            start, delta = {**block, "text": ""}, {"type": "text_delta", "text": block["text"]}
        else:
            start = {**block, "input": {}}
            delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
        events += [
            _event({"type": "content_block_start", "index": index, "content_block": start}),
            _event({"type": "content_block_delta", "index": index, "delta": delta}),
            _event({"type": "content_block_stop", "index": index}),
        ]
    end = {"stop_reason": body["stop_reason"], "stop_sequence": None}
    events.append(_event({"type": "message_delta", "delta": end, "usage": body["usage"]}))
    events.append(_event({"type": "message_stop"}))
    return b"".join(events)


def _object(arguments: str) -> dict[str, Any]:
    """Arguments are a JSON object, or the text would be no call (toolcalls.py); NaN and Infinity, which are no JSON, are said as text."""
    return json.loads(arguments or "{}", parse_constant=str)


def message_error(status: int, body: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "error",
        "error": {"type": _ERROR_TYPES.get(status, "api_error"), "message": body["error"]["message"]},
    }


def _usage(reply: Reply, output_tokens: int) -> dict[str, int]:
    """Cached tokens are not among `input_tokens`: the three sum up to the prompt."""
    return {
        "input_tokens": reply.prompt_tokens - reply.cached_tokens, "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": reply.cached_tokens, "output_tokens": output_tokens,
    }  # fmt: skip


def _event(body: dict[str, Any]) -> bytes:
    return f"event: {body['type']}\ndata: {json.dumps(body, separators=(',', ':'))}\n\n".encode()


CHAT = Wire(
    endpoint="chat", parse=parse_request, body=lambda reply, _request: reply.body(),
    opening=lambda call_id, model, created_s: delta_event(call_id, model, created_s, {"role": "assistant", "content": ""}),
    delta=lambda call_id, model, created_s, text: delta_event(call_id, model, created_s, {"content": text}),
    closing=lambda reply, sent, request: reply.last_chunks(sent, request.include_usage), error=lambda _status, body: body, error_event=error_event,
)  # fmt: skip
MESSAGES = Wire(
    endpoint="messages", parse=parse_messages_request, body=message_body, opening=lambda *_: b"", delta=None,
    closing=message_events, error=message_error, error_event=_event,
)  # fmt: skip

RESPONSES = Wire(
    endpoint="responses", parse=parse_responses_request, body=response_body, opening=lambda *_: b"", delta=None,
    closing=response_events, error=lambda _status, body: body, error_event=response_error_event,
)  # fmt: skip


def wire_of(path: str) -> Wire:
    """Errors of any path are said in the words of the API it belongs to."""
    if path.startswith("/v1/messages"):
        return MESSAGES
    return RESPONSES if path.startswith("/v1/responses") else CHAT

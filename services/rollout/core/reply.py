"""A finished model call, and OpenAI's chat completions' form of it: plain, streamed, errors. Usage is always there (litellm#24176)."""

import json
from dataclasses import dataclass
from typing import Any, Protocol

from services.rollout.core.request import ChatRequest
from services.rollout.core.toolcalls import Parsed

DONE = b"data: [DONE]\n\n"
KEEP_ALIVE = b": keep-alive\n\n"


@dataclass(frozen=True, slots=True)
class Head:
    """What is known of a call before it is sampled."""

    call_id: str
    model: str
    created_s: int
    prompt_tokens: int


@dataclass(frozen=True, slots=True)
class Reply:
    """A finished model call, as the harness is told."""

    call_id: str
    model: str
    created_s: int
    parsed: Parsed
    finish_reason: str
    """`stop`, `length` or `tool_calls`."""
    prompt_tokens: int
    output_tokens: int
    cached_tokens: int = 0

    def usage(self) -> dict[str, Any]:
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.output_tokens,
            "total_tokens": self.prompt_tokens + self.output_tokens,
            "prompt_tokens_details": {"cached_tokens": self.cached_tokens},
            "completion_tokens_details": {"reasoning_tokens": self.parsed.reasoning_tokens},
        }

    def body(self) -> dict[str, Any]:
        """The plain reply."""
        parsed = self.parsed
        message: dict[str, Any] = {
            "role": "assistant",
            "content": parsed.content if parsed.content or not parsed.calls else None,
        }
        if parsed.reasoning:
            message["reasoning_content"] = parsed.reasoning
        if parsed.calls:
            message["tool_calls"] = self.tool_calls()
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": self.finish_reason}
        head = _head(self.call_id, self.model, self.created_s, "chat.completion")
        return {**head, "choices": [choice], "usage": self.usage()}

    def tool_calls(self) -> list[dict[str, Any]]:
        return [
            {"id": call.call_id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in self.parsed.calls
        ]


class ReplyStream(Protocol):
    """A reply as server-sent events, whole ones only. Said in this order: `open`, `more` as often as there is something, `close` or `fail`."""

    def open(self) -> bytes: ...

    def more(self, reasoning: str, content: str) -> bytes:
        """All that is certain so far; answers the events of what is new."""
        ...

    def close(self, reply: Reply) -> bytes:
        """All that is left, of which calls are always."""
        ...

    def fail(self, body: dict[str, Any]) -> bytes:
        """An error, of its body in the dialect's own words."""
        ...


class ChatStream:
    """Chunks of chat completions; a call's name and arguments come in one."""

    def __init__(self, head: Head, request: ChatRequest) -> None:
        self._head = _head(head.call_id, head.model, head.created_s, "chat.completion.chunk")
        self._include_usage = request.include_usage
        self._reasoning = self._content = 0
        """Characters that are out."""

    def open(self) -> bytes:
        return self._delta({"role": "assistant", "content": ""})

    def more(self, reasoning: str, content: str) -> bytes:
        events = b""
        if new := reasoning[self._reasoning :]:
            self._reasoning = len(reasoning)
            events += self._delta({"reasoning_content": new})
        if new := content[self._content :]:
            self._content = len(content)
            events += self._delta({"content": new})
        return events

    def close(self, reply: Reply) -> bytes:
        events = self.more(reply.parsed.reasoning, reply.parsed.content)
        for index, call in enumerate(reply.tool_calls()):
            events += self._delta({"tool_calls": [{"index": index, **call}]})
        usage, finish = reply.usage(), {"index": 0, "delta": {}, "logprobs": None, "finish_reason": reply.finish_reason}
        events += self._chunk([finish], None if self._include_usage else usage)
        if self._include_usage:
            events += self._chunk([], usage)
        return events + DONE

    def fail(self, body: dict[str, Any]) -> bytes:
        return _data(body) + DONE

    def _delta(self, delta: dict[str, Any]) -> bytes:
        return self._chunk([{"index": 0, "delta": delta, "logprobs": None, "finish_reason": None}])

    def _chunk(self, choices: list[dict[str, Any]], usage: dict[str, Any] | None = None) -> bytes:
        """Usage is in one chunk of a stream only: some clients add up what they find."""
        said = {"usage": usage} if usage or self._include_usage else {}
        return _data({**self._head, "choices": choices, **said})


def error_body(message: str, kind: str, code: str, param: str | None = None) -> dict[str, Any]:
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def named_event(body: dict[str, Any]) -> bytes:
    """An event that is named after its type."""
    return f"event: {body['type']}\n".encode() + _data(body)


def models_body(model: str, context_max: int) -> dict[str, Any]:
    """The list of models, in one form that the clients of both makers read."""
    return {"object": "list", "data": [model_body(model, context_max)], "has_more": False, "first_id": model, "last_id": model}  # fmt: skip


def model_body(model: str, context_max: int) -> dict[str, Any]:
    return {
        "id": model, "object": "model", "created": 0, "owned_by": "gyre", "context_length": context_max,
        "type": "model", "display_name": model, "created_at": "1970-01-01T00:00:00Z", "lifecycle": "active",
        "max_input_tokens": context_max, "max_tokens": context_max,
    }  # fmt: skip


def _head(call_id: str, model: str, created_s: int, kind: str) -> dict[str, Any]:
    return {"id": f"chatcmpl-{call_id}", "object": kind, "created": created_s, "model": model}


def _data(body: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(body, separators=(",", ":")).encode() + b"\n\n"

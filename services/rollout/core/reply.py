"""OpenAI's wire form of replies: plain, streamed, errors. Usage is always there (litellm#24176)."""

import json
from dataclasses import dataclass
from typing import Any

from services.rollout.core.toolcalls import Parsed

DONE = b"data: [DONE]\n\n"
KEEP_ALIVE = b": keep-alive\n\n"


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
            message["tool_calls"] = self._calls()
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": self.finish_reason}
        return {**self._head("chat.completion"), "choices": [choice], "usage": self.usage()}

    def last_chunks(self, sent: str, include_usage: bool) -> bytes:
        """What a stream still lacks when `sent` of the content went out already, up to and including [DONE]."""
        chunks: list[dict[str, Any]] = []
        if self.parsed.reasoning:
            chunks.append({"reasoning_content": self.parsed.reasoning})
        if rest := self.parsed.content[len(sent) :]:
            chunks.append({"content": rest})
        chunks += [{"tool_calls": [{"index": index, **call}]} for index, call in enumerate(self._calls())]
        events = [self._event([{"index": 0, "delta": delta, "finish_reason": None}]) for delta in chunks]
        events.append(self._event([{"index": 0, "delta": {}, "finish_reason": self.finish_reason}], usage=self.usage()))
        if include_usage:
            events.append(self._event([], usage=self.usage()))
        return b"".join(events) + DONE

    def _calls(self) -> list[dict[str, Any]]:
        return [
            {"id": call.call_id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in self.parsed.calls
        ]

    def _head(self, kind: str) -> dict[str, Any]:
        return {"id": f"chatcmpl-{self.call_id}", "object": kind, "created": self.created_s, "model": self.model}

    def _event(self, choices: list[dict[str, Any]], **more: Any) -> bytes:
        return _event({**self._head("chat.completion.chunk"), "choices": choices, **more})


def delta_event(call_id: str, model: str, created_s: int, delta: dict[str, Any]) -> bytes:
    """One piece of a stream before its end."""
    head = {"id": f"chatcmpl-{call_id}", "object": "chat.completion.chunk", "created": created_s, "model": model}
    return _event({**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]})


def error_body(message: str, kind: str, code: str, param: str | None = None) -> dict[str, Any]:
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def error_event(body: dict[str, Any]) -> bytes:
    """An error after a stream has begun."""
    return _event(body) + DONE


def models_body(model: str, context_max: int) -> dict[str, Any]:
    entry = {"id": model, "object": "model", "created": 0, "owned_by": "gyre", "context_length": context_max}
    return {"object": "list", "data": [entry]}


def _event(body: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(body, separators=(",", ":")).encode() + b"\n\n"

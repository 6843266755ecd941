"""The wire formats a model call may come in: how each is read, answered, streamed, refused. And when a stream lets out what.

A stream says content as soon as it is certain, tool calls when they are whole. A gateway's death cuts it; how harnesses take that was tried
(docs/harnesses.md): Claude Code gives up after the first content, Qwen Code even after the headers. So to these nothing is let out before
the call is on record but, to Claude Code, signs of life, and to Qwen Code those late.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from services.rollout.core.anthropic import parse_messages_request
from services.rollout.core.memory import Memory
from services.rollout.core.messages_reply import PING, MessageStream, message_body, message_error
from services.rollout.core.reply import KEEP_ALIVE, ChatStream, Head, Reply, ReplyStream
from services.rollout.core.request import ChatRequest, parse_request
from services.rollout.core.responses import parse_responses_request
from services.rollout.core.responses_reply import ResponseStream, response_body


@dataclass(frozen=True, slots=True)
class Wire:
    """One wire format. Bytes are whole server-sent events."""

    endpoint: str
    """As rules for roles name it (classify.py)."""
    parse: Callable[[bytes, Memory | None], ChatRequest]
    """Raises BadRequest."""
    body: Callable[[Reply, ChatRequest], dict[str, Any]]
    """The plain reply."""
    stream: Callable[[Head, ChatRequest], ReplyStream]
    error: Callable[[int, dict[str, Any]], dict[str, Any]]
    """An error's body, of (status, the body as OpenAI has it)."""
    counted: Callable[[int], dict[str, Any]]
    """The answer to how many tokens a prompt has."""
    keep_alive: bytes = KEEP_ALIVE
    parse_to_count: Callable[[bytes, Memory | None], ChatRequest] | None = None
    """Where that request is another one."""

    def parse_count(self, body: bytes, memory: Memory | None) -> ChatRequest:
        return (self.parse_to_count or self.parse)(body, memory)


@dataclass(frozen=True, slots=True)
class Pace:
    """What a stream lets out before the call is on record."""

    content: bool
    quiet_s: float = 0.0
    """Before the first sign of life, headers included, comes as any other."""


LIVE = Pace(content=True)
PACES = {"claude-code": Pace(content=False), "qwen-code": Pace(content=False, quiet_s=60.0)}
"""By harness; Qwen Code's own patience is two minutes."""


def pace_of(harness: str, streams: str) -> Pace:
    """`streams` is the configured word: live, recorded, or by_harness."""
    match streams:
        case "live":
            return LIVE
        case "recorded":
            return PACES.get(harness, PACES["claude-code"])
    return PACES.get(harness, LIVE)


CHAT = Wire(
    "chat", parse_request, lambda reply, _request: reply.body(), ChatStream, lambda _status, body: body, lambda count: {"total_tokens": count}
)  # fmt: skip
MESSAGES = Wire(
    "messages", parse_messages_request, message_body, MessageStream, message_error, lambda count: {"input_tokens": count},
    PING, partial(parse_messages_request, is_count=True),
)  # fmt: skip
RESPONSES = Wire(
    "responses", parse_responses_request, response_body, ResponseStream, lambda _status, body: body,
    lambda count: {"object": "response.input_tokens", "input_tokens": count},
)  # fmt: skip

BASE = r"/+(?:v1/+){0,2}"
"""What may stand before a path's own words: clients differ in whether `/v1` and a slash belong to a base URL, and one URL is given to all of them."""
_BASE = re.compile(BASE)


def wire_of(path: str, headers: Mapping[str, str]) -> Wire:
    """Errors of any path are said in the words of the API it belongs to; where it belongs to none, in those of the client's maker."""
    words = _BASE.sub("", path, count=1)
    if words.startswith("messages"):
        return MESSAGES
    if words.startswith("responses"):
        return RESPONSES
    return MESSAGES if "anthropic-version" in headers and not words.startswith("chat") else CHAT

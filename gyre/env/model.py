"""The model as one execution sees it: `POST {api_base}/chat/completions` with the execution's own key.

A gateway that restarts, is busy (429, 503 with Retry-After) or drops the connection is asked again with the same messages until
the execution's time is up; the gateway knows a repeated request and answers it from its record.
"""

import asyncio
import json
import logging
from collections.abc import Callable
from typing import Any

import aiohttp

from gyre.env.driving import Access, Endpoint
from gyre.env.wall import WallClock
from gyre.errors import GyreError, InvalidInput
from gyre.tasks import end

log = logging.getLogger(__name__)

RETRY_FIRST_S = 0.2
RETRY_MAX_S = 2.0
UNKNOWN_KEY_GRACE_S = 20.0
"""A gateway that has just restarted may not know a key until its environments are attached again; after this long it never will."""

_KEY_REFUSED = {401, 403, 409, 410}
CONTEXT_CODES = ("context_length_exceeded", "context")
TURNS_CODES = {
    "turns": "turns", "turns_exceeded": "turns", "turn_limit": "turns", "tokens_exceeded": "tokens", "calls_exceeded": "calls",
}  # fmt: skip
"""The gateway's codes of limits that are reached, and what the execution then ends for."""


class ContextFull(GyreError):
    """The conversation no longer fits the model's or the execution's context."""

    code = "context"


class OutOfTurns(GyreError):
    """The gateway counts as many turns as the execution may make."""

    code = "turns"

    def __init__(self, message: str, reason: str = "turns") -> None:
        super().__init__(message)
        self.reason = reason
        """turns, tokens or calls."""


class OutOfTime(GyreError):
    """The execution's wall clock ended before the model had answered."""

    code = "wall"


class Refused(InvalidInput):
    """The gateway refuses the request for good."""

    code = "refused"


class ChatModel:
    """Completions for one execution."""

    def __init__(
        self,
        http: aiohttp.ClientSession,
        api_base: Callable[[], str],
        api_key: str,
        fixed: dict[str, Any],
        traceparent: str = "",
    ) -> None:
        """`api_base` is asked before each try, because a gateway may come back at another address; a call that waits at one that was left (Endpoint)
        is made again at the next. `fixed` goes into every request."""
        self._http = http
        self._api_base = api_base
        self._headers = {"authorization": f"Bearer {api_key}", "x-gyre-role": "main"} | (
            {"traceparent": traceparent} if traceparent else {}
        )
        self._fixed = fixed
        self._api_key, self._traceparent = api_key, traceparent

    def access(self) -> Access:
        """For an agent that asks by itself."""
        name, tokens = self._fixed.get("model", "policy"), self._fixed.get("max_tokens", 0)
        sampling = {key: value for key, value in self._fixed.items() if key != "model"}
        return Access(self._api_base, self._api_key, name, tokens, self._traceparent, sampling, self.complete)

    async def complete(self, messages: list[dict], tools: list[dict], wall: WallClock) -> dict[str, Any]:
        """The assistant's message. While the execution is suspended the gateway keeps the call waiting, and `wall` stands still.

        Raises ContextFull, OutOfTurns, OutOfTime, and Refused when the gateway refuses the request for good.
        """
        body = self._fixed | {"messages": messages} | ({"tools": tools} if tools else {})
        data = json.dumps(body).encode()
        loop = asyncio.get_running_loop()
        wait_s, unknown_since_s = RETRY_FIRST_S, None
        while True:
            await wall.going()
            if (left_s := wall.left_s()) <= 0:
                raise OutOfTime("the wall clock ended while the model was being asked")
            if (answer := await wall.until_cut(self._where_it_is(data, left_s))) is None:
                continue
            status, text, retry_after_s = answer
            if status == 200:
                return _message_of(text)
            if status in _KEY_REFUSED:
                unknown_since_s = unknown_since_s or loop.time()
                if loop.time() - unknown_since_s > UNKNOWN_KEY_GRACE_S:
                    raise Refused(f"the gateway does not take this execution's key: {status} {text[:300]}")
            elif 400 <= status < 500 and status not in (408, 425, 429):
                _refused(status, text)
            else:
                unknown_since_s = None
            await wall.until_cut(asyncio.sleep(max(0.0, min(retry_after_s or wait_s, wall.left_s()))))
            wait_s = min(2 * wait_s, RETRY_MAX_S)

    async def _where_it_is(self, data: bytes, timeout_s: float) -> tuple[int, str, float | None]:
        """As `_try`; no answer as soon as the gateway is another one, for the old one may never say anything again."""
        if not isinstance(self._api_base, Endpoint):
            return await self._try(data, timeout_s)
        trying = asyncio.ensure_future(self._try(data, timeout_s))
        moving = asyncio.ensure_future(self._api_base.moved())
        try:
            await asyncio.wait({trying, moving}, return_when=asyncio.FIRST_COMPLETED)
            return trying.result() if trying.done() else (0, "the gateway is another one", None)
        finally:
            await end(trying, moving)

    async def _try(self, data: bytes, timeout_s: float) -> tuple[int, str, float | None]:
        """Status (0: no answer), body, Retry-After in seconds."""
        headers = self._headers | {"content-type": "application/json"}
        try:
            async with self._http.post(
                f"{self._api_base().rstrip('/')}/chat/completions", data=data, headers=headers,
                timeout=aiohttp.ClientTimeout(total=timeout_s, sock_connect=5),
            ) as reply:  # fmt: skip
                text = (await reply.read()).decode(errors="replace")
                return reply.status, text, _seconds(reply.headers.get("retry-after"))
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            log.debug("no answer from the gateway: %r", error)
            return 0, str(error), None


def _seconds(text: str | None) -> float | None:
    try:
        return max(0.05, float(text)) if text else None
    except ValueError:
        return None


def _message_of(text: str) -> dict[str, Any]:
    try:
        message = json.loads(text)["choices"][0]["message"]
    except (ValueError, LookupError, TypeError) as error:
        raise Refused(f"the gateway's answer is no chat completion: {text[:200]!r}") from error
    return {name: value for name, value in message.items() if value is not None or name == "content"}


def _refused(status: int, text: str) -> None:
    """A refusal that asking again cannot change."""
    try:
        error = json.loads(text)["error"]
        code, message = str(error.get("code") or error.get("type") or ""), str(error.get("message", text))
    except (ValueError, LookupError, TypeError, AttributeError):
        code, message = "", text
    if code in CONTEXT_CODES or status == 413:
        raise ContextFull(message[:300])
    if code in TURNS_CODES:
        raise OutOfTurns(message[:300], TURNS_CODES[code])
    raise Refused(f"the gateway refused a model call: {status} {message[:300]}")

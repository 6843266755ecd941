"""`POST /v1/chat/completions`, `/v1/messages`, `/v1/responses` and their few companions, each in its API's words. Bad input is never a 500.

| answer | when |
|---|---|
| 400 | the request is wrong (`param` says where), `context_length_exceeded`, `turns_exceeded` |
| 401 `invalid_api_key` | no key of this run |
| 403 `execution_over` | the key's attempt has ended, or a newer attempt fences it |
| 404, 405, 413, 415 | unknown path, wrong method, body above rollout.request_bytes_max, packed body |
| 408 | a body that is not whole after BODY_S (patience.py) |
| 429 | too many calls of one execution at once, or too much of its bodies on the way (Retry-After) |
| 503 | engines fail or the gateway is stopping (Retry-After) |
"""

import asyncio
import contextlib
import json
import logging
import ssl  # noqa: F401  aiohttp's own import of it is lazy and slow on the first request
import time
from collections.abc import Awaitable, Callable
from functools import cache, partial

from aiohttp import HttpVersion11, web

from gyre.errors import GyreError, InvalidInput, Overloaded, Unavailable
from services.rollout.core.budget import BudgetOver
from services.rollout.core.keys import Claims, Keys
from services.rollout.core.options import BadRequest, clean
from services.rollout.core.reply import Head, Reply, ReplyStream, error_body, model_body, models_body
from services.rollout.core.request import MODEL_CHARS_MAX, ChatRequest
from services.rollout.core.wires import Pace, Wire, pace_of, wire_of
from services.rollout.gateway.callroles import CallRoles
from services.rollout.gateway.calls import ModelCalls
from services.rollout.gateway.forward import Forward
from services.rollout.gateway.patience import Patience, TooSlow
from services.rollout.gateway.running import Draft, ExecutionOver, Running
from services.rollout.gateway.server import Runner

log = logging.getLogger(__name__)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

KEEP_ALIVE_S = 5.0
"""A stream without news says so this often, so that no proxy or client takes it for dead."""
MODEL_NAME = "policy"
JSON = "application/json; charset=utf-8"
BASES = "{base:/*(?:v1/+){0,2}}"
"""Before a path's own words: clients differ in whether `/v1` and a slash belong to a base URL, and one URL is given to all of them."""
MESSAGE_CHARS_MAX = 1000
"""An error's text may quote what was wrong, but not all of it."""


class HttpGateway:
    """The HTTP side of the gateway."""

    def __init__(
        self, calls: ModelCalls, roles: CallRoles, secret: bytes, request_bytes_max: int, context_max: int,
        streams: str = "by_harness",
    ) -> None:  # fmt: skip
        self._calls = calls
        self._roles = roles
        self._keys = Keys(secret)
        self._context_max = context_max
        self._streams = streams
        self._patience = Patience()
        self._forward = Forward(self._patience, calls.is_served_at)
        app = web.Application(client_max_size=request_bytes_max, middlewares=[self._watched, _errors])
        app.router.add_get("/", self._root)
        app.router.add_get("/healthz", self._health)
        for base, end in (("/v1/", ""), (f"/{BASES}", "{end:/?}")):
            for words in ("chat/completions", "messages", "responses"):
                app.router.add_post(f"{base}{words}{end}", self._call, expect_handler=_go_on)
            for words in ("messages/count_tokens", "responses/input_tokens"):
                app.router.add_post(f"{base}{words}{end}", self._count, expect_handler=_go_on)
            app.router.add_get(f"{base}models{end}", self._models)
            app.router.add_get(f"{base}models/{{model:.+}}", self._model)
        # Unpacking is refused: a packed body's size says nothing about what it becomes.
        self._runner = Runner(
            app, access_log=None, handler_cancellation=True, shutdown_timeout=1.0, auto_decompress=False
        )

    async def start(self, address: str) -> None:
        """Raises Unavailable when the port is taken."""
        host, _, port = address.rpartition(":")
        await self._runner.setup()
        assert self._runner.server is not None
        self._patience.start(self._runner.server)
        try:
            await web.TCPSite(self._runner, host, int(port), backlog=1024).start()
        except OSError as error:
            raise Unavailable(f"cannot listen on {address}: {error}") from error

    async def stop(self) -> None:
        await self._patience.stop()
        await self._runner.cleanup()
        await self._forward.close()

    @web.middleware
    async def _watched(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        self._patience.begins(request)
        try:
            return await handler(request)
        finally:
            self._patience.ends(request)

    async def _health(self, _request: web.Request) -> web.Response:
        return web.json_response({"status": "ok", "sessions": self._calls.sessions})

    async def _models(self, request: web.Request) -> web.Response:
        self._claims(request)
        return web.json_response(models_body(MODEL_NAME, self._context_max))

    async def _model(self, request: web.Request) -> web.Response:
        self._claims(request)
        return web.json_response(model_body(clean(request.match_info["model"][:MODEL_CHARS_MAX]), self._context_max))

    async def _root(self, request: web.Request) -> web.Response:
        """Claude Code looks whether anybody is there (HEAD) before its first call."""
        if request.method != "HEAD":
            raise web.HTTPNotFound
        return web.Response()

    async def _count(self, request: web.Request) -> web.StreamResponse:
        """What the prompt of such a call would be, in tokens; no call is made."""
        claims, wire = self._claims(request), wire_of(request.path, request.headers)
        if address := await self._calls.server(claims):
            return await self._forward(request, address, claims.execution_id)
        asked = wire.parse_count(await self._body(request, claims), self._calls.memory(claims))
        return web.json_response(wire.counted(await self._calls.count_tokens(claims, asked)))

    async def _call(self, request: web.Request) -> web.StreamResponse:
        claims, wire = self._claims(request), wire_of(request.path, request.headers)
        if address := await self._calls.server(claims):
            return await self._forward(request, address, claims.execution_id)
        asked = wire.parse(await self._body(request, claims), self._calls.memory(claims))
        verdict = cache(partial(self._roles.of, claims, asked, wire.endpoint, request.headers))
        running = await self._calls.soon(claims, asked, verdict)
        try:
            if asked.stream:
                return await self._stream(request, wire, asked, running, pace_of(verdict().harness, self._streams))
            running.drafts.append(draft := Draft(lambda reply: json.dumps(wire.body(reply, asked)).encode()))
            reply = await running.reply()
            return web.Response(body=draft.of(reply), headers={"content-type": JSON, **_names(running)})
        finally:
            self._calls.hang_up(running)

    async def _stream(
        self, request: web.Request, wire: Wire, asked: ChatRequest, running: Running, pace: Pace
    ) -> web.StreamResponse:
        stream = wire.stream(Head(running.call_id, running.model, running.created_s, running.prompt_tokens), asked)
        line = _Line(request, running, stream, self._patience, pace.quiet_s)
        while not running.done.done():
            running.changed.clear()
            if pace.content and running.reader is not None:
                await line.say(stream.more(running.reader.reasoning, running.reader.content))
            await _moves(running, pace, line.rest_s())
            if not running.done.done() and line.rest_s() <= 0.0:
                await line.say(wire.keep_alive, is_part=pace.content)
        try:
            reply: Reply = running.done.result()
        except Exception as error:
            if line.response is None:
                raise
            status, body, _ = _answer(error)
            said = b": status %d\n\n" % status  # for whoever asks again by himself (gyre.env.harness.relay)
            await line.say(said + stream.fail(wire.error(status, body)), is_part=False)
        else:
            await line.say(stream.close(reply))
        await self._patience.end(request, line.response)
        return line.response

    async def _body(self, request: web.Request, claims: Claims) -> bytes:
        packed = request.headers.get("content-encoding", "").strip().lower()
        if packed not in ("", "identity"):
            raise _Packed(f"content-encoding {packed[:80]}: send the body as it is")
        return await self._patience.body(request, claims.execution_id)

    def _claims(self, request: web.Request) -> Claims:
        """Of whichever key is right: clients fill the other header with what they find in their environment."""
        scheme, _, bearer = request.headers.get("authorization", "").partition(" ")
        for key in (bearer if scheme.lower() == "bearer" else "", request.headers.get("x-api-key", "")):
            if key.strip() and (claims := self._keys.claims(key.strip())) is not None:
                return claims
        raise _WrongKey("this key is none of an execution of this run")


class _Line:
    """A stream on its way out: its headers with the first word, its opening before the first part of the reply."""

    def __init__(
        self, request: web.Request, running: Running, stream: ReplyStream, patience: Patience, quiet_s: float
    ) -> None:
        """`quiet_s` is to pass before a sign of life may be the first word."""
        self._request, self._running, self._stream, self._patience = request, running, stream, patience
        self._due_s = time.monotonic() + quiet_s + KEEP_ALIVE_S
        self.response: web.StreamResponse | None = None
        self._is_open = False

    async def say(self, data: bytes, is_part: bool = True) -> None:
        if not data:
            return
        if self.response is None:
            headers = {"content-type": "text/event-stream", "cache-control": "no-cache", **_names(self._running)}
            self.response = web.StreamResponse(headers=headers)
            if self._request.version < HttpVersion11:
                self.response.force_close()  # nothing else says to it where a stream ends
            await self.response.prepare(self._request)
        if is_part and not self._is_open:
            self._is_open, data = True, self._stream.open() + data
        await self._patience.write(self._request, self.response, data)
        self._due_s = time.monotonic() + KEEP_ALIVE_S

    def rest_s(self) -> float:
        """How long nothing more need be said: counted from what left, for most of what a model samples may be nothing that this stream tells."""
        return max(0.0, self._due_s - time.monotonic())


async def _moves(running: Running, pace: Pace, timeout_s: float) -> None:
    """Until something happens that this stream may tell of, `timeout_s` at most."""
    if not pace.content:
        await asyncio.wait([running.done], timeout=timeout_s)
        return
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(timeout_s):
            await running.changed.wait()


def _names(running: Running) -> dict[str, str]:
    """The call's name where clients look for a request's."""
    return {"x-request-id": running.call_id, "request-id": running.call_id}


async def _go_on(request: web.Request) -> None:
    """Of a client that waits for leave to send its body; any other expectation is nobody's concern."""
    if request.version >= HttpVersion11 and request.headers.get("expect", "").lower() == "100-continue":
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        request.writer.output_size = 0


class _WrongKey(GyreError):
    code = "invalid_api_key"


class _Packed(GyreError):
    code = "unsupported_encoding"


@web.middleware
async def _errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except asyncio.CancelledError:
        raise
    except ConnectionResetError:  # nobody is there to be told, or its answer was broken off
        if request.transport is not None:
            request.transport.close()
        return web.Response()
    except Exception as error:
        status, body, headers = _answer(error)
        if status == 500:
            log.exception("a defect while answering %s", request.path)
        with contextlib.suppress(ConnectionResetError):
            said = wire_of(request.path, request.headers).error(status, body)
            return web.json_response(said, status=status, headers=headers)
        raise


def _answer(error: Exception) -> tuple[int, dict, dict[str, str]]:
    """Status, body, headers."""
    text = str(error)[:MESSAGE_CHARS_MAX]
    match error:
        case BadRequest():
            return 400, error_body(text, "invalid_request_error", error.error_code, error.param), {}
        case BudgetOver():
            return 400, error_body(text, "invalid_request_error", error.code), {}
        case InvalidInput():
            return 400, error_body(text, "invalid_request_error", error.code), {}
        case _WrongKey():
            return 401, error_body(text, "authentication_error", error.code), {}
        case TooSlow():
            return 408, error_body(text, "invalid_request_error", error.code), {}
        case ExecutionOver():
            return 403, error_body(text, "permission_error", error.code), {}
        case _Packed():
            return 415, error_body(text, "invalid_request_error", error.code), {}
        case Overloaded():
            return 429, error_body(text, "rate_limit_error", error.code), {"retry-after": f"{error.retry_after_s:g}"}
        case GyreError():
            return 503, error_body(text, "server_error", error.code), {"retry-after": "1"}
        case RecursionError():
            return 400, error_body("the body is nested too deeply", "invalid_request_error", "invalid_json"), {}
        case web.HTTPRequestEntityTooLarge():
            return (
                413,
                error_body(f"the body is too large: {error.text}", "invalid_request_error", "request_too_large"),
                {},
            )
        case web.HTTPException():
            word = {404: "not_found", 405: "method_not_allowed"}.get(error.status, "bad_request")
            known = "/v1/chat/completions, /v1/messages, /v1/responses, /v1/models"
            allowed = {"allow": error.headers["allow"]} if "allow" in error.headers else {}
            return error.status, error_body(f"{error.reason}: see {known}", "invalid_request_error", word), allowed
    return 500, error_body("internal error", "server_error", "internal"), {}

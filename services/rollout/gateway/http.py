"""`POST /v1/chat/completions`, `/v1/messages`, `/v1/responses` and their few companions, each in its API's words. Bad input is never a 500.

| answer | when |
|---|---|
| 400 | the request is wrong (`param` says where), `context_length_exceeded`, `turns_exceeded` |
| 401 `invalid_api_key` | no key of this run |
| 403 `execution_over` | the key's attempt has ended, or a newer attempt fences it |
| 404, 405, 413 | unknown path, wrong method, body above rollout.request_bytes_max |
| 429 | too many calls of one execution at once (Retry-After) |
| 503 | engines fail or the gateway is stopping (Retry-After) |
"""

import asyncio
import contextlib
import logging
import ssl  # noqa: F401  aiohttp's own import of it is lazy and slow on the first request
from collections.abc import Awaitable, Callable

from aiohttp import web

from gyre.errors import GyreError, InvalidInput, Overloaded, Unavailable
from services.rollout.core.anthropic import parse_messages_request
from services.rollout.core.keys import Claims, verify
from services.rollout.core.reply import KEEP_ALIVE, Reply, error_body, models_body
from services.rollout.core.request import BadRequest, ChatRequest
from services.rollout.core.wires import Wire, wire_of
from services.rollout.gateway.callroles import CallRoles
from services.rollout.gateway.calls import ExecutionOver, ModelCalls, Running, TurnsOver

log = logging.getLogger(__name__)

KEEP_ALIVE_S = 5.0
"""A stream without news says so this often, so that no proxy or client takes it for dead."""
MODEL_NAME = "policy"
MESSAGE_CHARS_MAX = 1000
"""An error's text may quote what was wrong, but not all of it."""


class HttpGateway:
    """The HTTP side of the gateway."""

    def __init__(
        self, calls: ModelCalls, roles: CallRoles, secret: bytes, request_bytes_max: int, context_max: int
    ) -> None:
        self._calls = calls
        self._roles = roles
        self._secret = secret
        self._context_max = context_max
        app = web.Application(client_max_size=request_bytes_max, middlewares=[_errors])
        app.router.add_post("/v1/chat/completions", self._call)
        app.router.add_post("/v1/messages", self._call)
        app.router.add_post("/v1/responses", self._call)
        app.router.add_post("/v1/messages/count_tokens", self._count_tokens)
        app.router.add_get("/", self._root)
        app.router.add_get("/v1/models", self._models)
        app.router.add_get("/healthz", self._health)
        # Unpacking is refused: a packed body's size says nothing about what it becomes.
        self._runner = web.AppRunner(
            app, access_log=None, handler_cancellation=True, shutdown_timeout=1.0, auto_decompress=False
        )

    async def start(self, address: str) -> None:
        """Raises Unavailable when the port is taken."""
        host, _, port = address.rpartition(":")
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, host, int(port), backlog=1024).start()
        except OSError as error:
            raise Unavailable(f"cannot listen on {address}: {error}") from error

    async def stop(self) -> None:
        await self._runner.cleanup()

    async def _health(self, _request: web.Request) -> web.Response:
        return web.json_response({"status": "ok", "sessions": self._calls.sessions})

    async def _models(self, request: web.Request) -> web.Response:
        self._claims(request)
        return web.json_response(models_body(MODEL_NAME, self._context_max))

    async def _root(self, request: web.Request) -> web.Response:
        """Claude Code looks whether anybody is there (HEAD) before its first call."""
        if request.method != "HEAD":
            raise web.HTTPNotFound
        return web.Response()

    async def _count_tokens(self, request: web.Request) -> web.Response:
        self._claims(request)
        asked = parse_messages_request(await _body(request), is_count=True)
        return web.json_response({"input_tokens": self._calls.count_tokens(asked)})

    async def _call(self, request: web.Request) -> web.StreamResponse:
        claims, wire = self._claims(request), wire_of(request.path)
        asked = wire.parse(await _body(request))
        running = self._calls.begin(claims, asked, self._roles.of(claims, asked, wire.endpoint, request.headers))
        running.watchers += 1
        try:
            if asked.stream:
                return await self._stream(request, wire, asked, running)
            reply = await asyncio.shield(running.done)
            return web.json_response(wire.body(reply, asked))
        finally:
            running.watchers -= 1
            self._calls.hang_up(running)

    async def _stream(
        self, request: web.Request, wire: Wire, asked: ChatRequest, running: Running
    ) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": "text/event-stream", "cache-control": "no-cache"})
        head = running.call_id, running.model, running.created_s
        sent, is_open = "", False

        async def say(data: bytes) -> None:
            nonlocal is_open
            if not is_open:
                is_open = True
                await response.prepare(request)
                await response.write(wire.opening(*head))
            await response.write(data)

        while not running.done.done():
            running.changed.clear()
            if wire.delta is not None and (new := running.content[len(sent) :]):
                sent += new
                await say(wire.delta(*head, new))
            elif not await _moves(running, wire):
                await say(KEEP_ALIVE)
        try:
            reply: Reply = running.done.result()
        except Exception as error:
            if not is_open:
                raise
            status, body, _ = _answer(error)
            await say(wire.error_event(wire.error(status, body)))
        else:
            await say(wire.closing(reply, sent, asked))
        await response.write_eof()
        return response

    def _claims(self, request: web.Request) -> Claims:
        scheme, _, key = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer":
            key = request.headers.get("x-api-key", "")
        claims = verify(key.strip(), self._secret) if key else None
        if claims is None:
            raise _WrongKey("this key is none of an execution of this run")
        return claims


async def _moves(running: Running, wire: Wire) -> bool:
    """Whether anything that this wire tells of happens within KEEP_ALIVE_S."""
    if wire.delta is None:
        done, _ = await asyncio.wait([running.done], timeout=KEEP_ALIVE_S)
        return bool(done)
    try:
        await asyncio.wait_for(running.changed.wait(), KEEP_ALIVE_S)
    except TimeoutError:
        return False
    return True


async def _body(request: web.Request) -> bytes:
    if (packed := request.headers.get("content-encoding", "identity")) != "identity":
        raise BadRequest(f"content-encoding {packed[:80]}: send the body as it is", error_code="unsupported_encoding")
    return await request.read()


class _WrongKey(GyreError):
    code = "invalid_api_key"


@web.middleware
async def _errors(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    try:
        return await handler(request)
    except (ConnectionResetError, asyncio.CancelledError):
        raise
    except Exception as error:
        status, body, headers = _answer(error)
        if status == 500:
            log.exception("a defect while answering %s", request.path)
        with contextlib.suppress(ConnectionResetError):
            return web.json_response(wire_of(request.path).error(status, body), status=status, headers=headers)
        raise


def _answer(error: Exception) -> tuple[int, dict, dict[str, str]]:
    """Status, body, headers."""
    text = str(error)[:MESSAGE_CHARS_MAX]
    match error:
        case BadRequest():
            return 400, error_body(text, "invalid_request_error", error.error_code, error.param), {}
        case TurnsOver():
            return 400, error_body(text, "invalid_request_error", error.code), {}
        case InvalidInput():
            return 400, error_body(text, "invalid_request_error", error.code), {}
        case _WrongKey():
            return 401, error_body(text, "authentication_error", error.code), {}
        case ExecutionOver():
            return 403, error_body(text, "permission_error", error.code), {}
        case Overloaded():
            return 429, error_body(text, "rate_limit_error", error.code), {"retry-after": f"{error.retry_after_s:g}"}
        case GyreError():
            return 503, error_body(text, "server_error", error.code), {"retry-after": "1"}
        case RecursionError():
            return 400, error_body("the body is nested too deeply", "invalid_request_error", "invalid_json"), {}
        case web.HTTPRequestEntityTooLarge():
            return 413, error_body(f"the body is too large: {text}", "invalid_request_error", "request_too_large"), {}
        case web.HTTPException():
            return (
                error.status,
                error_body(
                    f"{error.reason}: see /v1/chat/completions, /v1/messages, /v1/responses, /v1/models",
                    "invalid_request_error",
                    "not_found",
                ),
                {},
            )
    return 500, error_body("internal error", "server_error", "internal"), {}

"""`POST /v1/chat/completions`, `/v1/messages`, `/v1/responses` and their few companions, each in its API's words. Bad input is never a 500.

| answer | when |
|---|---|
| 400 | the request is wrong (`param` says where), `context_length_exceeded`, `turns_exceeded` |
| 401 `invalid_api_key` | no key of this run, or keys of two attempts |
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
from functools import cache, partial

from aiohttp import HttpVersion11, web

from gyre.errors import GyreError, InvalidInput, Overloaded, Unavailable
from services.rollout.core.budget import BudgetOver
from services.rollout.core.keys import Claims, Keys
from services.rollout.core.options import BadRequest, clean
from services.rollout.core.reply import Head, Reply, ReplyStream, error_body, model_body, models_body
from services.rollout.core.request import MODEL_CHARS_MAX, ChatRequest
from services.rollout.core.wires import Pace, Wire, pace_of, wire_of
from services.rollout.gateway import paths
from services.rollout.gateway.callroles import CallRoles
from services.rollout.gateway.calls import ModelCalls
from services.rollout.gateway.forward import Forward
from services.rollout.gateway.patience import Patience, TooSlow
from services.rollout.gateway.running import Draft, ExecutionOver, Running
from services.rollout.gateway.server import Asked, Handler, Server

log = logging.getLogger(__name__)

KEEP_ALIVE_S = 5.0
"""A stream without news says so this often, so that no proxy or client takes it for dead."""
MODEL_NAME = "policy"
JSON = "application/json; charset=utf-8"
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
        self._handlers: dict[str, Handler] = {
            "": self._root, "healthz": self._health, paths.MODELS: self._models, paths.MODEL: self._model,
            **dict.fromkeys(paths.CALLS, self._call), **dict.fromkeys(paths.COUNTS, self._count),
        }  # fmt: skip
        self._server = Server(self._answered, request_bytes_max)
        self._runner = web.ServerRunner(self._server, shutdown_timeout=1.0)

    async def start(self, address: str) -> None:
        """Raises Unavailable when the port is taken."""
        host, _, port = address.rpartition(":")
        await self._runner.setup()
        self._patience.start(self._server)
        try:
            await web.TCPSite(self._runner, host, int(port), backlog=1024).start()
        except OSError as error:
            raise Unavailable(f"cannot listen on {address}: {error}") from error

    async def stop(self) -> None:
        await self._patience.stop()
        await self._runner.cleanup()
        await self._forward.close()

    async def _answered(self, request: Asked) -> web.StreamResponse:
        """Whatever happens is an answer, in the words of the API that was asked."""
        self._patience.begins(request)
        try:
            return await self._handler_of(request)(request)
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
        finally:
            self._patience.ends(request)

    def _handler_of(self, request: Asked) -> Handler:
        if (found := paths.place_of(request.path)) is None:
            raise web.HTTPNotFound
        place, _ = found
        if request.method not in paths.METHODS[place]:
            raise web.HTTPMethodNotAllowed(request.method, paths.METHODS[place])
        return self._handlers[place]

    async def _health(self, _request: Asked) -> web.Response:
        return web.json_response({"status": "ok", "sessions": self._calls.sessions})

    async def _models(self, request: Asked) -> web.Response:
        self._claims(request)
        return web.json_response(models_body(MODEL_NAME, self._context_max))

    async def _model(self, request: Asked) -> web.Response:
        self._claims(request)
        _, name = paths.place_of(request.path) or ("", "")
        return web.json_response(model_body(clean(name[:MODEL_CHARS_MAX]), self._context_max))

    async def _root(self, request: Asked) -> web.Response:
        """Claude Code looks whether anybody is there (HEAD) before its first call."""
        if request.method != "HEAD":
            raise web.HTTPNotFound
        return web.Response()

    async def _count(self, request: Asked) -> web.StreamResponse:
        """What the prompt of such a call would be, in tokens; no call is made."""
        claims, wire = self._claims(request), wire_of(request.path, request.headers)
        if address := await self._calls.server(claims):
            return await self._forward(request, address, claims.execution_id)
        asked = wire.parse_count(await self._body(request, claims), self._calls.memory(claims))
        return web.json_response(wire.counted(await self._calls.count_tokens(claims, asked)))

    async def _call(self, request: Asked) -> web.StreamResponse:
        claims, wire = self._claims(request), wire_of(request.path, request.headers)
        if address := await self._calls.server(claims):
            return await self._forward(request, address, claims.execution_id)
        asked = wire.parse(await self._body(request, claims), memory := self._calls.memory(claims))
        verdict = cache(partial(self._roles.of, claims, asked, wire.endpoint, request.headers))
        running = await self._calls.soon(claims, asked, verdict)
        if memory is not None and asked.input is not None:
            memory.earlier.keep(running.call_id, asked.input)
        try:
            if asked.stream:
                return await self._stream(request, wire, asked, running, pace_of(verdict().harness, self._streams))
            running.drafts.append(draft := Draft(lambda reply: json.dumps(wire.body(reply, asked)).encode()))
            reply = await running.reply()
            return web.Response(body=draft.of(reply), headers={"content-type": JSON, **_names(running)})
        finally:
            self._calls.hang_up(running)

    async def _stream(
        self, request: web.BaseRequest, wire: Wire, asked: ChatRequest, running: Running, pace: Pace
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

    async def _body(self, request: web.BaseRequest, claims: Claims) -> bytes:
        packed = request.headers.get("content-encoding", "").strip().lower()
        if packed not in ("", "identity"):
            raise _Packed(f"content-encoding {packed[:80]}: send the body as it is")
        return await self._patience.body(request, claims.execution_id)

    def _claims(self, request: Asked) -> Claims:
        """Of whichever header's key is right: clients fill the other with what they find in their environment. A key in the URL was put there for
        this call, so it must be right. Right ones of two attempts are refused: whichever won, the call could be on record as another's."""
        scheme, _, bearer = request.headers.get("authorization", "").partition(" ")
        said = (bearer if scheme.lower() == "bearer" else "", request.headers.get("x-api-key", ""))
        right = [claims for key in said if (claims := self._keys.claims(key.strip())) is not None]
        if request.url_key:
            if (claims := self._keys.claims(request.url_key)) is None:
                raise _WrongKey("the key in this URL is none of an execution of this run")
            right.append(claims)
        if not right:
            raise _WrongKey("this key is none of an execution of this run")
        if any((one.execution_id, one.attempt) != (right[0].execution_id, right[0].attempt) for one in right[1:]):
            raise _WrongKey("these keys are of two attempts; send one")
        return right[0]


class _Line:
    """A stream on its way out: its headers with the first word, its opening before the first part of the reply."""

    def __init__(
        self, request: web.BaseRequest, running: Running, stream: ReplyStream, patience: Patience, quiet_s: float
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


class _WrongKey(GyreError):
    code = "invalid_api_key"


class _Packed(GyreError):
    code = "unsupported_encoding"


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

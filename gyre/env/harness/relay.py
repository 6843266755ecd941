"""Between a harness and the gateway: the harness's calls get through whatever happens to the gateway.

    harness ── a key of its own, or a URL with it ──▶ relay ── the attempt's key ──▶ gateway, which may die, come back, be elsewhere

A call is asked again until it is answered: the gateway knows it again and answers from its record. A stream is handed on when it is whole, with
signs of life until then, for there are harnesses that give up on a stream that breaks (docs/harnesses.md). The harness never sees the attempt's
key, and which harness it is need not be guessed. What was refused for good is remembered: it is why a harness ends.

All executions of a process share its memory and its descriptors, so none may take much of them: bodies are no larger than the gateway takes, few
bytes of them are held at once, and a call for which there is no room waits unread.
"""

import asyncio
import contextlib
import json
import logging
import re
import secrets
import time
from collections.abc import AsyncIterator, Callable

import aiohttp
from aiohttp import web

from gyre.config.sections.rollout import RolloutConfig
from gyre.env.driving import Access, Endpoint
from gyre.env.trail import Trail
from gyre.keyed_url import apart

log = logging.getLogger(__name__)

REQUEST_BYTES_MAX = RolloutConfig().request_bytes_max
"""The gateway's own bound, unless its run has another."""
OPEN_REQUESTS = 8
"""As many of the largest bodies are held at once, or any number of small ones: a sub-agent's conversation has a few hundred KiB."""
CONNECTIONS_MAX = 256
"""A harness with a dozen sub-agents has some tens. Further ones are closed at once."""
RETRY_FIRST_S, RETRY_MAX_S = 0.2, 2.0
KEY_REFUSED = (401, 403, 409, 410)
KEY_GRACE_S = 20.0
"""A gateway that has just started may not know the attempt yet."""
BUSY = (429, 502, 503, 504)
FAILED = re.compile(rb"^: status ([0-9]{3})$", re.MULTILINE)
"""What the gateway says before the error of a stream that has begun; a reply's own text has no such line, for it is JSON."""
COUNTS = ("/count_tokens", "/input_tokens")
"""Ask the gateway, and not the model: no turns."""
KEEP_ALIVE_S = 5.0
PASSED_HEADERS = ("content-type", "retry-after", "request-id", "x-request-id")
NOT_PASSED = {
    "host",
    "authorization",
    "x-api-key",
    "content-length",
    "connection",
    "transfer-encoding",
    "accept-encoding",
    "expect",
    "keep-alive",
}


class Relay:
    """`async with Relay(access, harness) as relay:` listens on a port of this machine, for this attempt alone."""

    def __init__(
        self, access: Access, harness: str, request_bytes_max: int = REQUEST_BYTES_MAX, trail: Trail | None = None
    ) -> None:
        """`request_bytes_max`: of one call's body, as the gateway has it. `trail` is told of calls, and may hold up one while none is in flight."""
        self._access, self._trail = access, trail
        self._passing = asyncio.Lock()
        self._request_bytes_max = request_bytes_max
        self._room = _Room(OPEN_REQUESTS * request_bytes_max)
        self._key_headers = {"authorization": f"Bearer {access.api_key}", "x-gyre-harness": harness}
        if access.traceparent:
            self._key_headers["traceparent"] = access.traceparent
        self.key = f"relay-{secrets.token_urlsafe(24)}"
        self.base = ""
        """URL without /v1."""
        self.open = 0
        """Calls under way."""
        self.answered = 0
        self.retries = 0
        self.touched_s = time.monotonic()
        """When a call last began or ended, on time.monotonic's clock."""
        self.refusals: list[str] = []
        """Codes or texts of what was refused for good, the newest last; at most 20."""
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._relay)
        self._runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.2)

    @property
    def is_holding(self) -> bool:
        """A call waits for a snapshot."""
        return self._passing.locked()

    async def __aenter__(self) -> "Relay":
        self._http = aiohttp.ClientSession(
            auto_decompress=False, timeout=aiohttp.ClientTimeout(total=None, sock_connect=5),
            connector=aiohttp.TCPConnector(limit=0),  # how many there may be says the gateway, by 429
        )  # fmt: skip
        await self._runner.setup()
        server, loop = self._runner.server, asyncio.get_running_loop()
        self._listener = await loop.create_server(
            lambda: server() if len(server.connections) < CONNECTIONS_MAX else _Closed(), "127.0.0.1", 0
        )
        self.base = f"http://127.0.0.1:{self._listener.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._listener.close()
        await self._runner.cleanup()
        await self._http.close()

    async def _relay(self, request: web.Request) -> web.StreamResponse:
        said, url = apart(request.rel_url)
        if said:
            request = request.clone(rel_url=url)
        else:
            said = request.headers.get("authorization", "").partition(" ")[2] or request.headers.get("x-api-key", "")
        if request.method != "HEAD" and not secrets.compare_digest(said.strip().encode(), self.key.encode()):
            return _refusal(request, 401, "this key is not this execution's", "authentication_error", "invalid_api_key")
        told = self._request_bytes_max if request.content_length is None else request.content_length
        size = told if request.can_read_body else 0
        if size > self._request_bytes_max:
            return self._too_large(request)
        async with self._room.of(size) as share:
            if (body := await _body(request, size)) is None:
                return self._too_large(request)
            share.keep(len(body))
            return await self._call(request, body)

    def _too_large(self, request: web.Request) -> web.Response:
        text = f"the body is too large: more than {self._request_bytes_max} bytes"
        refusal = _refusal(request, 413, text, "invalid_request_error", "request_too_large")
        self._note(request, refusal.status, refusal.body)
        return refusal

    async def _call(self, request: web.Request, body: bytes) -> web.StreamResponse:
        is_call = request.method == "POST"
        self.touched_s = time.monotonic()
        if is_call and self._trail is not None:
            async with self._passing:  # whoever comes while one is held up waits behind it
                await self._trail.between(is_quiet=not self.open, is_turn=_is_turn(request))
                self.open += 1
        else:
            self.open += is_call
        try:
            return await self._carry(request, body)
        finally:
            self.open -= is_call
            self.touched_s = time.monotonic()

    async def _carry(self, request: web.Request, body: bytes) -> web.StreamResponse:
        """Until there is a whole answer. The harness hanging up cancels it, and so the call at the gateway."""
        stream: web.StreamResponse | None = None
        wait_s, refused_since_s = RETRY_FIRST_S, None
        while True:
            pause_s = 0.0
            try:
                async with self._while_there() as stay, self._ask(request, body) as reply:
                    pause_s = _seconds(reply.headers.get("retry-after"))
                    if reply.status in KEY_REFUSED:
                        refused_since_s = refused_since_s or time.monotonic()
                    is_refused = refused_since_s is not None and time.monotonic() - refused_since_s > KEY_GRACE_S
                    if reply.status not in BUSY and (reply.status not in KEY_REFUSED or is_refused):
                        if stream is None and reply.content_type == "text/event-stream":
                            stream = await _opened(request)
                        return await self._answer(request, reply, stream, stay)
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                if request.transport is None or request.transport.is_closing():
                    raise
                log.info("%s is asked again: %s", request.path, error)
            self.retries += 1
            await _wait(max(pause_s, wait_s), stream)
            wait_s = min(2 * wait_s, RETRY_MAX_S)

    def _ask(self, request: web.Request, body: bytes):
        headers = {name: value for name, value in request.headers.items() if name.lower() not in NOT_PASSED}
        url = self._access.api_base().rstrip("/").removesuffix("/v1") + request.path_qs
        return self._http.request(
            request.method, url, data=body or None, headers=headers | self._key_headers, allow_redirects=False
        )

    @contextlib.asynccontextmanager
    async def _while_there(self) -> AsyncIterator[Callable[[], object]]:
        """TimeoutError inside when the gateway is another one, for the old one may never say anything again; what it yields ends the watch."""
        if not isinstance(base := self._access.api_base, Endpoint):
            yield lambda: None
            return
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(None) as limit:

            async def move() -> None:
                await base.moved()
                limit.reschedule(loop.time())

            moving = loop.create_task(move())
            try:
                yield moving.cancel
            finally:
                moving.cancel()

    async def _answer(
        self, request: web.Request, reply: aiohttp.ClientResponse, stream: web.StreamResponse | None, stay: Callable[[], object]
    ) -> web.StreamResponse:  # fmt: skip
        """`stay` once there is a whole one. Raises aiohttp.ClientError where it breaks off, or is a failure that passes."""
        if stream is None:
            data = await reply.read()
            self._note(request, reply.status, data)
            return web.Response(status=reply.status, body=data, headers=_passed(reply))
        data = b"".join([piece async for piece in _whole(reply, stream)])
        stay()
        failed = FAILED.search(data) if reply.status == 200 else None
        status = int(failed[1]) if failed else reply.status
        if failed and status in BUSY:
            raise aiohttp.ClientError(f"its stream failed with {status}")
        self._note(request, status, data[failed.start() :] if failed else data)
        if reply.status != 200:  # the stream is open, and this is no stream: the harness asks again and is told plainly
            request.transport.abort()
            return stream
        await stream.write(data)
        await stream.write_eof()
        return stream

    def _note(self, request: web.Request, status: int, data: bytes) -> None:
        if request.method != "POST":
            return
        if status == 200:
            self.answered += 1
            if self._trail is not None and _is_turn(request):
                self._trail.answered()
            return
        text = data.decode(errors="replace")[:300]
        with contextlib.suppress(ValueError, AttributeError, TypeError):
            error = json.loads(data)["error"]
            text = f"{error.get('code') or error.get('type')}: {error.get('message')}"[:300]
        self.refusals = [*self.refusals[-19:], f"{status} {text}"]


class _Room:
    """Bytes that may be held at once; whoever finds too few waits for those that others give back."""

    def __init__(self, bytes_max: int) -> None:
        self._free = bytes_max
        self._given_back = asyncio.Event()

    @contextlib.asynccontextmanager
    async def of(self, size: int) -> AsyncIterator["_Share"]:
        while self._free < size:
            self._given_back.clear()
            await self._given_back.wait()
        self._free -= size
        share = _Share(self, size)
        try:
            yield share
        finally:
            share.keep(0)

    def give_back(self, size: int) -> None:
        self._free += size
        self._given_back.set()


class _Share:
    """What one call holds of a room."""

    def __init__(self, room: _Room, size: int) -> None:
        self._room, self._size = room, size

    def keep(self, size: int) -> None:
        """Only so much of it is needed from here on: a body of unknown size was given room for the largest."""
        self._room.give_back(self._size - size)
        self._size = size


class _Closed(asyncio.Protocol):
    """A connection too many."""

    def connection_made(self, transport: asyncio.Transport) -> None:
        transport.abort()


async def _body(request: web.Request, bytes_max: int) -> bytes | None:
    """None: it is larger. The request does not keep it, as `request.read` would."""
    pieces, size = list[bytes](), 0
    while piece := await request.content.readany():
        if (size := size + len(piece)) > bytes_max:
            return None
        pieces.append(piece)
    return b"".join(pieces)


def _is_turn(request: web.Request) -> bool:
    return request.method == "POST" and not request.path.rstrip("/").endswith(COUNTS)


def _refusal(request: web.Request, status: int, message: str, kind: str, code: str) -> web.Response:
    """In the words of the API that was asked, as the gateway has them."""
    if "/messages" in request.path:
        error = {"type": code if status == 413 else kind, "message": message}
        return web.json_response({"type": "error", "error": error}, status=status)
    return web.json_response({"error": {"message": message, "type": kind, "param": None, "code": code}}, status=status)


async def _opened(request: web.Request) -> web.StreamResponse:
    stream = web.StreamResponse(headers={"content-type": "text/event-stream", "cache-control": "no-cache"})
    await stream.prepare(request)
    return stream


async def _whole(reply: aiohttp.ClientResponse, stream: web.StreamResponse) -> AsyncIterator[bytes]:
    """The gateway's bytes but for its signs of life; meanwhile our own go to the harness."""
    pieces = reply.content.iter_any().__aiter__()
    coming = asyncio.ensure_future(anext(pieces, None))
    try:
        while True:
            done, _ = await asyncio.wait([coming], timeout=KEEP_ALIVE_S)
            if not done:
                await stream.write(b": keep-alive\n\n")
                continue
            if (piece := coming.result()) is None:
                return
            yield piece
            coming = asyncio.ensure_future(anext(pieces, None))
    finally:
        coming.cancel()
        with contextlib.suppress(asyncio.CancelledError, Exception):
            await coming


async def _wait(seconds: float, stream: web.StreamResponse | None) -> None:
    while seconds > 0:
        await asyncio.sleep(min(seconds, KEEP_ALIVE_S))
        seconds -= KEEP_ALIVE_S
        if stream is not None:
            await stream.write(b": keep-alive\n\n")


def _passed(reply: aiohttp.ClientResponse) -> dict[str, str]:
    return {name: reply.headers[name] for name in PASSED_HEADERS if name in reply.headers}


def _seconds(text: str | None) -> float:
    try:
        return min(60.0, max(0.0, float(text or 0)))
    except ValueError:
        return 0.0

"""Between a harness and the gateway: the harness's calls get through whatever happens to the gateway.

    harness ── a key of its own ──▶ relay ── the attempt's key ──▶ gateway, which may die, come back, be elsewhere

A call is asked again until it is answered: the gateway knows it again and answers from its record. A stream is handed on when it is whole, with
signs of life until then, for there are harnesses that give up on a stream that breaks (docs/harnesses.md). The harness never sees the attempt's
key, and which harness it is need not be guessed. What was refused for good is remembered: it is why a harness ends.
"""

import asyncio
import contextlib
import json
import logging
import secrets
import time
from collections.abc import AsyncIterator

import aiohttp
from aiohttp import web

from gyre.env.driving import Access

log = logging.getLogger(__name__)

REQUEST_BYTES_MAX = 256 * 2**20
"""The gateway's own bound comes first; this only keeps a harness from filling memory."""
RETRY_FIRST_S, RETRY_MAX_S = 0.2, 2.0
KEY_REFUSED = (401, 403, 409, 410)
KEY_GRACE_S = 20.0
"""A gateway that has just started may not know the attempt yet."""
BUSY = (429, 502, 503, 504)
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

    def __init__(self, access: Access, harness: str) -> None:
        self._access = access
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
        app = web.Application(client_max_size=REQUEST_BYTES_MAX)
        app.router.add_route("*", "/{path:.*}", self._relay)
        self._runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.2)

    async def __aenter__(self) -> "Relay":
        self._http = aiohttp.ClientSession(
            auto_decompress=False, timeout=aiohttp.ClientTimeout(total=None, sock_connect=5)
        )
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.base = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()
        await self._http.close()

    async def _relay(self, request: web.Request) -> web.StreamResponse:
        said = request.headers.get("authorization", "").partition(" ")[2] or request.headers.get("x-api-key", "")
        if request.method != "HEAD" and not secrets.compare_digest(said.strip().encode(), self.key.encode()):
            return web.json_response(
                {"error": {"message": "this key is not this execution's", "type": "authentication_error"}}, status=401
            )
        body = await request.read()
        is_call = request.method == "POST"
        self.open += is_call
        self.touched_s = time.monotonic()
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
                async with self._ask(request, body) as reply:
                    pause_s = _seconds(reply.headers.get("retry-after"))
                    if reply.status in KEY_REFUSED:
                        refused_since_s = refused_since_s or time.monotonic()
                    is_refused = refused_since_s is not None and time.monotonic() - refused_since_s > KEY_GRACE_S
                    if reply.status not in BUSY and (reply.status not in KEY_REFUSED or is_refused):
                        if stream is None and reply.content_type == "text/event-stream":
                            stream = await _opened(request)
                        return await self._answer(request, reply, stream)
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

    async def _answer(
        self, request: web.Request, reply: aiohttp.ClientResponse, stream: web.StreamResponse | None
    ) -> web.StreamResponse:
        """Raises aiohttp.ClientError where the answer breaks off."""
        if stream is None:
            data = await reply.read()
            self._note(request, reply.status, data)
            return web.Response(status=reply.status, body=data, headers=_passed(reply))
        data = b"".join([piece async for piece in _whole(reply, stream)])
        self._note(request, reply.status, data)
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
            return
        text = data.decode(errors="replace")[:300]
        with contextlib.suppress(ValueError, AttributeError, TypeError):
            error = json.loads(data)["error"]
            text = f"{error.get('code') or error.get('type')}: {error.get('message')}"[:300]
        self.refusals = [*self.refusals[-19:], f"{status} {text}"]


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

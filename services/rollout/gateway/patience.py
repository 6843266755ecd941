"""How long a client may take to say something: a slow or silent one costs a connection for a while, and never the others theirs.

    opened ──▶ first request's head whole within HEAD_S ──▶ its body within BODY_S (408) ──▶ a stream's pieces taken within TAKE_S each
           ──▶ idle, as long as others need no room

What bodies of one execution take while they come is bounded, too (429): a client may declare many and never end one.

A connection between two calls is kept for a harness that thinks for an hour; only when there are too many of them the longest idle ones go.
"""

import asyncio
import resource
import time
from collections.abc import Awaitable, Callable

from aiohttp import HttpVersion11, web

from gyre.errors import GyreError, Overloaded

HEAD_S = 30.0
"""A client that has connected means to ask: a second is much."""
BODY_S = 120.0
"""For rollout.request_bytes_max over a slow line."""
TAKE_S = 120.0
"""A client that takes nothing of its stream for so long does not read it any more."""
IDLE_MAX = 4096
"""As many as calls may wait; half of the files that this process may open where that is less, for calls under way need theirs, too."""
BODIES_MAX = 4
"""Bodies of the greatest size that one execution may be sending at the same time; of usual ones it is hundreds."""
FILES_WANTED = 16_384
SWEEP_S = 5.0


class TooSlow(GyreError):
    code = "request_timeout"


class Patience:
    """Of one HTTP server."""

    def __init__(self) -> None:
        self._since_s: dict[web.RequestHandler, float] = {}
        """Connection → when it was first seen, or its last call ended."""
        self._busy: dict[web.RequestHandler, int] = {}
        self._has_asked: set[web.RequestHandler] = set()
        self._idle_max = IDLE_MAX
        self._sweeping: asyncio.Task | None = None
        self._coming: dict[str, int] = {}
        """Execution → bytes of its bodies that are on their way, declared ones as soon as they are."""

    def start(self, server: web.Server) -> None:
        self._idle_max = min(IDLE_MAX, _files_max() // 2)
        self._sweeping = asyncio.create_task(self._sweep(server))

    async def stop(self) -> None:
        if self._sweeping is not None:
            self._sweeping.cancel()
            await asyncio.gather(self._sweeping, return_exceptions=True)

    def begins(self, request: web.BaseRequest) -> None:
        self._has_asked.add(request.protocol)
        self._busy[request.protocol] = self._busy.get(request.protocol, 0) + 1

    def ends(self, request: web.BaseRequest) -> None:
        self._busy.pop(request.protocol, None)
        self._since_s[request.protocol] = time.monotonic()

    async def body(self, request: web.BaseRequest, execution: str) -> bytes:
        """Raises TooSlow, HTTPRequestEntityTooLarge, Overloaded."""
        if request.content.is_eof():
            _declared(request)
            return await _whole(request, _nothing)
        await _go_on(request)
        held = 0

        def hold(size: int) -> None:
            nonlocal held
            if size <= held:
                return
            coming = self._coming.get(execution, 0) + size - held
            if coming > BODIES_MAX * request.client_max_size:
                raise Overloaded(
                    f"bodies of this execution that are on their way take {coming} bytes; send fewer at once"
                )
            self._coming[execution], held = coming, size

        try:
            hold(_declared(request))
            async with asyncio.timeout(BODY_S):
                return await _whole(request, hold)
        except TimeoutError as error:
            raise TooSlow(f"the body was not whole after {BODY_S:g} s") from error
        finally:
            if held and not (left := self._coming[execution] - held):
                del self._coming[execution]
            elif held:
                self._coming[execution] = left

    async def write(self, request: web.BaseRequest, response: web.StreamResponse, data: bytes) -> None:
        """Raises ConnectionResetError."""
        await self._taken(request, response.write(data))

    async def end(self, request: web.BaseRequest, response: web.StreamResponse) -> None:
        """Of a stream: all that it was told is taken. Raises ConnectionResetError."""
        await self._taken(request, response.write_eof())

    @staticmethod
    async def _taken(request: web.BaseRequest, writing: Awaitable[None]) -> None:
        try:
            async with asyncio.timeout(TAKE_S):
                await writing
        except TimeoutError as error:
            if request.transport is not None:
                request.transport.abort()  # to close it would wait for the client to take the rest
            raise ConnectionResetError("the client takes nothing of its stream") from error

    async def _sweep(self, server: web.Server) -> None:
        while True:
            self.sweep(server, time.monotonic())
            await asyncio.sleep(SWEEP_S)

    def sweep(self, server: web.Server, now_s: float) -> None:
        """Close what has been silent for too long."""
        there = server.connections
        self._since_s = {one: self._since_s.get(one, now_s) for one in there}
        self._has_asked.intersection_update(there)
        idle = sorted((one for one in there if one not in self._busy), key=self._since_s.__getitem__)
        spare = max(0, len(idle) - self._idle_max)
        for index, one in enumerate(idle):
            if index < spare or (one not in self._has_asked and now_s - self._since_s[one] > HEAD_S):
                one.force_close()


def _files_max() -> int:
    """How many files this process may open, after asking for FILES_WANTED."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES_WANTED if hard == resource.RLIM_INFINITY else min(FILES_WANTED, hard)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return max(soft, wanted)
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return wanted


def _declared(request: web.BaseRequest) -> int:
    """Bytes that are said to come. Raises HTTPRequestEntityTooLarge."""
    size = request.content_length or 0
    if size > request.client_max_size:
        raise web.HTTPRequestEntityTooLarge(request.client_max_size, size)
    return size


async def _go_on(request: web.BaseRequest) -> None:
    """To a client that waits for leave to send its body; any other expectation is nobody's concern."""
    if request.version >= HttpVersion11 and request.headers.get("expect", "").lower() == "100-continue":
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        request.writer.output_size = 0


def _nothing(_size: int) -> None:
    """Of a body that is here already."""


async def _whole(request: web.BaseRequest, hold: Callable[[int], None]) -> bytes:
    """As `request.read`, but the request does not keep it: a connection that waits for its next call would hold its last body all the while.
    `hold` is told how much of it there is."""
    content = request.content
    content.set_read_chunk_size(request.client_max_size)
    # No more than was declared comes: it need not be counted with every packet, nor put together twice.
    if request.content_length:
        pieces = [await content.readany()]
        await content.wait_eof()
        while not content.at_eof():
            pieces.append((await content.readchunk())[0])
        return b"".join(pieces)
    pieces, size = list[bytes](), 0
    while piece := await content.readany():
        size += len(piece)
        if size > request.client_max_size:
            raise web.HTTPRequestEntityTooLarge(request.client_max_size, size)
        hold(size)
        pieces.append(piece)
    return b"".join(pieces)

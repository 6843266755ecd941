"""A call that came to one gateway and belongs to another: passed on, its answer streamed back as it comes."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable

import aiohttp
from aiohttp import web

from gyre.errors import Unavailable
from services.rollout.core.options import clean
from services.rollout.gateway.patience import Patience
from services.rollout.gateway.server import Asked

log = logging.getLogger(__name__)

FORWARDED = "x-gyre-forwarded"
"""A call is passed on once: whoever gets one that is not his answers 503, and the harness asks again."""
NOT_PASSED_ON = frozenset(
    {"host", "content-length", "transfer-encoding", "connection", "keep-alive", "upgrade", FORWARDED}
)
CONNECT_S = 2.0
LOOK_S = 1.0
"""How often it is asked whether the other gateway lives: what stands still breaks no connection, and a call may take any time to be answered."""


class Forward:
    """Connections to the other gateways."""

    def __init__(self, patience: Patience, is_there: Callable[[str], bool]) -> None:
        """`patience`: with the clients, whose calls these are. `is_there`: whether the gateway at an address gives signs of life."""
        self._patience, self._is_there = patience, is_there
        self._http: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        if self._http is not None:
            await self._http.close()

    async def __call__(self, request: Asked, address: str, execution: str) -> web.StreamResponse:
        """The answer of the gateway at `address`. Raises Unavailable when it gives none, and what Patience raises."""
        if FORWARDED in request.headers:
            raise Unavailable(f"this session is served at {address} now; ask again")
        if self._http is None:
            timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S)
            self._http = aiohttp.ClientSession(
                timeout=timeout, auto_decompress=False, connector=aiohttp.TCPConnector(limit=0)
            )
        body = await self._patience.body(request, execution)
        asked = {**_passed_on(request), FORWARDED: "1"}
        reply: web.StreamResponse | None = None
        try:
            url = f"http://{address}{request.path_qs}"
            async with (
                self._lives(address),
                self._http.request(request.method, url, data=body, headers=asked) as answer,
            ):
                kept = {name: value for name, value in answer.headers.items() if name.lower() not in NOT_PASSED_ON}
                reply = web.StreamResponse(status=answer.status, headers=kept)
                await reply.prepare(request)
                async for piece in answer.content.iter_any():
                    await self._patience.write(request, reply, piece)
                await self._patience.end(request, reply)
                return reply
        except (aiohttp.ClientError, TimeoutError) as error:
            log.info("%s gave no answer: %r", address, error)
            if reply is not None:  # its answer was cut: so is ours
                raise ConnectionResetError(f"{address} broke off") from error
            raise Unavailable(f"the gateway at {address} does not answer; ask again") from error

    @contextlib.asynccontextmanager
    async def _lives(self, address: str) -> AsyncIterator[None]:
        """TimeoutError inside, when that gateway gives no sign of life any more."""
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(None) as limit:

            async def look() -> None:
                while self._is_there(address):  # noqa: ASYNC110  nobody tells of a silence
                    await asyncio.sleep(LOOK_S)
                limit.reschedule(loop.time())

            looking = loop.create_task(look())
            try:
                yield
            finally:
                looking.cancel()


def _passed_on(request: Asked) -> dict[str, str]:
    """Its headers; a key that its URL had is the bearer's, for errors of a connection may quote a URL."""
    left_out = NOT_PASSED_ON | {"authorization"} if request.url_key else NOT_PASSED_ON
    headers = {name: clean(value) for name, value in request.headers.items() if name.lower() not in left_out}
    return headers | {"authorization": f"Bearer {request.url_key}"} if request.url_key else headers

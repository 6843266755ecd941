"""Calls that are passed on to the gateway that serves them: with the same patience as one's own (state and restarts)."""

import asyncio

import aiohttp
import pytest
from aiohttp import web

from gyre.bus.server import free_port
from gyre.clock import ManualClock
from gyre.config import Config
from services.rollout.core.keys import sign
from services.rollout.gateway import patience
from services.rollout.gateway.callroles import CallRoles
from services.rollout.gateway.http import HttpGateway

from .test_calls import claims, made  # noqa: F401  a fixture
from .test_http import BODY, SECRET

PIECE = b"x" * 65536


@pytest.fixture
async def relayed(made, monkeypatch):  # noqa: F811
    """A gateway that passes every call on to a double: (its address, the requests that came there, whether the double's answer never ends)."""
    calls, _, bus, _ = made
    seen, endless = list[web.Request](), asyncio.Event()

    async def serve(request: web.Request) -> web.StreamResponse:
        seen.append(request)
        await request.read()
        if not endless.is_set():
            return web.json_response({})
        reply = web.StreamResponse()
        await reply.prepare(request)
        while True:
            await reply.write(PIECE)

    other = web.AppRunner(_app(serve), handler_cancellation=True, shutdown_timeout=0.1)
    await other.setup()
    there, here = (f"127.0.0.1:{free_port()}" for _ in range(2))
    await web.TCPSite(other, *there.split(":")).start()

    async def server(_claims) -> str:
        return there

    monkeypatch.setattr(calls, "server", server)
    gateway = HttpGateway(calls, CallRoles(Config(), bus, ManualClock(100.0)), SECRET, 10_000, 200)
    await gateway.start(here)
    yield here, seen, endless
    await gateway.stop()
    await other.cleanup()


def _app(serve) -> web.Application:
    app = web.Application()
    app.router.add_post("/{path:.*}", serve)
    return app


def client(address: str) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        f"http://{address}", headers={"authorization": f"Bearer {sign(claims(), SECRET)}"}, read_bufsize=1024
    )


async def test_a_body_that_never_ends_is_given_up_here_too(relayed, monkeypatch):
    address, seen, _ = relayed
    monkeypatch.setattr(patience, "BODY_S", 0.05)
    never = asyncio.Event()

    async def slowly():
        yield b"{"
        await never.wait()

    async with client(address) as http, http.post("/v1/messages", data=slowly()) as reply:
        assert reply.status == 408 and not seen


async def test_a_body_above_the_bound_is_refused_here_too(relayed):
    address, seen, _ = relayed
    async with client(address) as http, http.post("/v1/messages", data=b" " * 10_001) as reply:
        assert reply.status == 413 and not seen


async def test_a_client_that_takes_nothing_of_a_stream_that_is_passed_on_loses_it(relayed, monkeypatch):
    """And the gateway that samples it hears of it: its connection ends."""
    address, seen, endless = relayed
    monkeypatch.setattr(patience, "TAKE_S", 0.1)
    endless.set()
    async with client(address) as http, http.post("/v1/messages", json=BODY | {"stream": True}) as reply:
        async with asyncio.timeout(30.0):
            while not seen or seen[0].transport is not None:  # noqa: ASYNC110  nobody tells of it
                await asyncio.sleep(0.01)
        with pytest.raises(aiohttp.ClientError):
            while await reply.content.readany():
                pass

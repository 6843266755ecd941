"""Calls that are passed on to the gateway that serves them: with the same patience as one's own (state and restarts)."""

import asyncio

import aiohttp
import pytest
from aiohttp import web

from gyre.bus.server import free_port
from gyre.clock import ManualClock
from gyre.config import Config
from services.rollout.core.keys import sign
from services.rollout.gateway import forward, patience
from services.rollout.gateway.callroles import CallRoles
from services.rollout.gateway.http import HttpGateway
from tests.support import until

from .test_calls import claims, made  # noqa: F401  a fixture
from .test_http import BODY, SECRET

PIECE = b"x" * 65536


@pytest.fixture
async def relayed(made, monkeypatch):  # noqa: F811
    """A gateway that passes every call on to a double: (its address, the requests that came there, whether the double's answer never ends).
    The double gives signs of life unless a test says otherwise."""
    calls, _, bus, _ = made
    seen, endless, silent = list[web.Request](), asyncio.Event(), asyncio.Event()

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
    monkeypatch.setattr(calls, "is_served_at", lambda address: address == there and not silent.is_set())
    gateway = HttpGateway(calls, CallRoles(Config(), bus, ManualClock(100.0)), SECRET, 10_000, 200)
    await gateway.start(here)
    yield here, seen, endless, silent
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
    address, seen, _, _ = relayed
    monkeypatch.setattr(patience, "BODY_S", 0.05)
    never = asyncio.Event()

    async def slowly():
        yield b"{"
        await never.wait()

    async with client(address) as http, http.post("/v1/messages", data=slowly()) as reply:
        assert reply.status == 408 and not seen


async def test_a_body_above_the_bound_is_refused_here_too(relayed):
    address, seen, _, _ = relayed
    async with client(address) as http, http.post("/v1/messages", data=b" " * 10_001) as reply:
        assert reply.status == 413 and not seen


async def test_a_client_that_takes_nothing_of_a_stream_that_is_passed_on_loses_it(relayed, monkeypatch):
    """And the gateway that samples it hears of it: its connection ends."""
    address, seen, endless, _ = relayed
    monkeypatch.setattr(patience, "TAKE_S", 0.1)
    endless.set()
    async with client(address) as http, http.post("/v1/messages", json=BODY | {"stream": True}) as reply:
        async with asyncio.timeout(30.0):
            while not seen or seen[0].transport is not None:  # noqa: ASYNC110  nobody tells of it
                await asyncio.sleep(0.01)
        with pytest.raises(aiohttp.ClientError):
            while await reply.content.readany():
                pass


@pytest.mark.parametrize("is_begun", [False, True], ids=["unanswered", "in mid stream"])
async def test_a_call_is_given_up_when_the_gateway_that_serves_it_gives_no_sign_of_life(relayed, monkeypatch, is_begun):
    """It stands still, or its machine is gone: the connection stays, and the call may be asked again where its session is served next."""
    address, seen, endless, silent = relayed
    monkeypatch.setattr(forward, "LOOK_S", 0.01)
    endless.set()
    if not is_begun:
        monkeypatch.setattr(web.StreamResponse, "prepare", _never(web.StreamResponse.prepare))
    begun = asyncio.Event()
    async with client(address) as http, asyncio.TaskGroup() as group:
        asking = group.create_task(_asked(http, begun))
        await until(begun.is_set if is_begun else lambda: seen)
        silent.set()
        status = await asking
    assert status == ("cut" if is_begun else 503)


async def _asked(http: aiohttp.ClientSession, begun: asyncio.Event) -> int | str:
    async with http.post("/v1/messages", json=BODY) as reply:
        begun.set()
        try:
            async for _ in reply.content.iter_any():
                pass
        except aiohttp.ClientError:
            return "cut"
        return reply.status


def _never(prepare):
    """The double's answers never begin; the gateway's own, which are plain ones, do."""

    async def prepared(self, request):
        if type(self) is web.StreamResponse:
            await asyncio.Event().wait()
        return await prepare(self, request)

    return prepared

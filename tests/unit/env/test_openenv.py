"""OpenEnv's wire, against a server of this test's own that goes wrong; the real library: tests/adapters/test_openenv.py."""

import asyncio
import contextlib

import pytest
from aiohttp import web

from gyre.env.openenv import BadAction, OpenEnvSession
from gyre.errors import InvalidInput, Unavailable


@contextlib.asynccontextmanager
async def served(answer):
    """`answer(message, socket)` for each message of a session."""

    async def connected(request):
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        async for message in socket:
            await answer(message.json(), socket)
        return socket

    app = web.Application()
    app.router.add_get("/ws", connected)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    session = OpenEnvSession(f"http://127.0.0.1:{runner.addresses[0][1]}")
    try:
        yield session
    finally:
        await session.close()
        await runner.cleanup()


async def test_an_answer_that_was_given_up_on_is_never_taken_for_the_next_requests(tmp_path):
    """OpenEnv#1143: after a time-out replies were off by one for ever. The wire has no ids, so the session is over instead."""
    release = asyncio.Event()

    async def late(message, socket):
        await release.wait()
        await socket.send_json({"type": "observation", "data": {"observation": {"of": message["data"]}, "done": False}})

    async with served(late) as session:
        await session.open()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(session.ask("step", {"n": 1}), 0.2)
        release.set()
        with pytest.raises(Unavailable, match="is over"):
            await session.ask("step", {"n": 2})


async def test_what_the_server_refuses_is_told_apart():
    """A wrong action is the model's to correct; an error of the world is the execution's end."""

    async def refuse(message, socket):
        code = message["data"]["code"]
        await socket.send_json(
            {"type": "error", "data": {"message": "no", "code": code, "errors": [{"loc": ["number"]}]}}
        )

    async with served(refuse) as session:
        await session.open()
        with pytest.raises(BadAction, match=r"no .*number"):
            await session.ask("step", {"code": "VALIDATION_ERROR"})
        with pytest.raises(InvalidInput, match="no") as error:
            await session.ask("step", {"code": "EXECUTION_ERROR"})
        assert not isinstance(error.value, BadAction)


async def test_a_server_that_hangs_up_or_is_not_there_is_unavailable():
    async def hang_up(message, socket):
        await socket.close()

    async with served(hang_up) as session:
        await session.open()
        with pytest.raises(Unavailable, match="broke"):
            await session.ask("reset", {})
    with pytest.raises(Unavailable, match="cannot be reached"):
        await OpenEnvSession("http://127.0.0.1:9").open()

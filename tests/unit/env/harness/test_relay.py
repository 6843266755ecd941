"""Calls get through whatever happens to the gateway; the harness sees one key, its own (A6, B1)."""

import asyncio
import contextlib
from collections.abc import Callable

import aiohttp
import pytest
from aiohttp import web

from gyre.env.driving import Access
from gyre.env.harness import relay as module
from gyre.env.harness.relay import Relay
from tests.support import until

EVENTS = b'event: a\ndata: {"n": 1}\n\n: keep-alive\n\nevent: b\ndata: {"n": 2}\n\n'


class Gateway:
    """Answers the n-th request as it is told to; keeps their headers and bodies."""

    def __init__(self, *answers: Callable) -> None:
        self._answers = list(answers)
        self.seen: list[tuple[str, dict[str, str], bytes]] = []

    async def __aenter__(self) -> "Gateway":
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._serve)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.base = f"http://127.0.0.1:{self._runner.addresses[0][1]}/v1"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        headers = {name.lower(): value for name, value in request.headers.items()}
        self.seen.append((request.path_qs, headers, await request.read()))
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        return await answer(request)


def plain(body: dict, status: int = 200, **headers: str) -> Callable:
    async def answer(_request: web.Request) -> web.Response:
        return web.json_response(body, status=status, headers=headers)

    return answer


def stream(data: bytes, is_whole: bool = True) -> Callable:
    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        await response.write(data)
        if not is_whole:
            request.transport.abort()
        return response

    return answer


async def cut(request: web.Request) -> web.StreamResponse:
    request.transport.abort()
    return web.Response()


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Waiting between two tries is no part of what is tested."""
    monkeypatch.setattr(module, "RETRY_FIRST_S", 0.01)
    monkeypatch.setattr(module, "RETRY_MAX_S", 0.01)


@contextlib.asynccontextmanager
async def relayed(gateway: Gateway):
    async with (
        Relay(Access(lambda: gateway.base, "attempts-key", traceparent="00-1-2-01"), "codex") as relay,
        aiohttp.ClientSession(headers={"x-api-key": relay.key, "x-own": "1"}) as http,
    ):
        yield relay, http


async def test_a_call_goes_on_with_the_attempts_key_and_the_harnesss_name():
    async with Gateway(plain({"ok": 1})) as gateway, relayed(gateway) as (relay, http):
        async with http.post(f"{relay.base}/v1/messages?beta=true", json={"a": 1}) as reply:
            assert await reply.json() == {"ok": 1}
        path, headers, body = gateway.seen[0]
        assert (path, body) == ("/v1/messages?beta=true", b'{"a": 1}')
        assert headers["authorization"] == "Bearer attempts-key" and "x-api-key" not in headers
        assert (headers["x-gyre-harness"], headers["traceparent"], headers["x-own"]) == ("codex", "00-1-2-01", "1")
        assert (relay.answered, relay.open, relay.refusals) == (1, 0, [])


async def test_another_key_is_refused_here():
    async with Gateway(plain({})) as gateway, relayed(gateway) as (relay, http):
        async with http.post(f"{relay.base}/v1/messages", headers={"x-api-key": "attempts-key"}) as reply:
            assert reply.status == 401
        assert not gateway.seen


async def test_a_call_is_asked_again_until_it_is_answered():
    """The gateway died, came back and did not know the attempt yet, was busy: the harness sees one answer."""
    answers = (cut, plain({}, 403), plain({}, 503, **{"retry-after": "0.01"}), plain({}, 429), plain({"ok": 1}))
    async with Gateway(*answers) as gateway, relayed(gateway) as (relay, http):
        async with http.post(f"{relay.base}/v1/chat/completions", data=b"asked") as reply:
            assert (reply.status, await reply.json()) == (200, {"ok": 1})
        assert [body for _, _, body in gateway.seen] == [b"asked"] * 5 and relay.retries == 4


async def test_a_stream_that_breaks_in_the_middle_reaches_the_harness_once_and_whole():
    """Claude Code and Qwen Code give up on a stream that breaks; they never see that it did."""
    async with (
        Gateway(stream(EVENTS[:30], is_whole=False), cut, stream(EVENTS)) as gateway,
        relayed(gateway) as (relay, http),
    ):
        async with http.post(f"{relay.base}/v1/responses", json={"stream": True}) as reply:
            assert reply.content_type == "text/event-stream"
            data = await reply.read()
        assert data.replace(b": keep-alive\n\n", b"") == EVENTS.replace(b": keep-alive\n\n", b"")
        assert (len(gateway.seen), relay.answered) == (3, 1)


async def test_what_is_refused_for_good_is_passed_on_and_remembered():
    error = {"error": {"code": "turns_exceeded", "message": "this execution has made its 3 turns"}}
    async with Gateway(plain(error, 400)) as gateway, relayed(gateway) as (relay, http):
        async with http.post(f"{relay.base}/v1/chat/completions") as reply:
            assert (reply.status, await reply.json()) == (400, error)
        assert relay.refusals == ["400 turns_exceeded: this execution has made its 3 turns"] and relay.answered == 0


async def test_a_key_that_stays_unknown_is_refused_after_a_while(monkeypatch):
    monkeypatch.setattr(module, "KEY_GRACE_S", 0.05)
    async with (
        Gateway(plain({"error": {"code": "execution_over", "message": "over"}}, 403)) as gateway,
        relayed(gateway) as (relay, http),
    ):
        async with http.post(f"{relay.base}/v1/chat/completions") as reply:
            assert reply.status == 403
        assert len(gateway.seen) > 1


async def test_a_harness_that_hangs_up_hangs_up_at_the_gateway():
    asked, left = asyncio.Event(), asyncio.Event()

    async def waits(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        asked.set()
        with contextlib.suppress(ConnectionError):
            while True:
                await response.write(b" ")
                await asyncio.sleep(0)
        left.set()
        return response

    async with Gateway(waits) as gateway, relayed(gateway) as (relay, http):
        asking = asyncio.create_task(http.post(f"{relay.base}/v1/messages"))
        await asked.wait()
        assert relay.open == 1
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        await left.wait()
        await until(lambda: relay.open == 0)

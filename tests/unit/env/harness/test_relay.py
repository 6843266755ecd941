"""Calls get through whatever happens to the gateway; the harness sees one key, its own (A6, B1)."""

import asyncio
import contextlib
from collections.abc import Callable

import aiohttp
import pytest
from aiohttp import web

from gyre.env.driving import Access, Endpoint
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
        app = web.Application(client_max_size=2**26)
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
async def relayed(gateway: Gateway, request_bytes_max: int = module.REQUEST_BYTES_MAX):
    async with (
        Relay(
            Access(lambda: gateway.base, "attempts-key", traceparent="00-1-2-01"), "codex", request_bytes_max
        ) as relay,
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


@pytest.mark.parametrize(
    ("path", "error"),
    [
        ("/v1/messages?beta=true", {"type": "error", "error": {"type": "request_too_large"}}),
        ("/v1/responses", {"error": {"type": "invalid_request_error", "param": None, "code": "request_too_large"}}),
    ],
)
@pytest.mark.parametrize("is_told_size", [True, False])
async def test_a_body_that_the_gateway_would_not_take_is_refused_here_in_the_apis_words(path, error, is_told_size):
    async def pieces():
        for _ in range(9):
            yield bytes(2**20)

    async with Gateway(plain({"ok": 1})) as gateway, relayed(gateway) as (relay, http):
        large = bytes(module.REQUEST_BYTES_MAX + 1) if is_told_size else pieces()
        async with http.post(relay.base + path, data=large) as reply:
            said = await reply.json()
        assert reply.status == 413 and said["error"].pop("message") and said == error
        assert not gateway.seen and "request_too_large" in relay.refusals[0]
        async with http.post(relay.base + path, data=bytes(module.REQUEST_BYTES_MAX)) as reply:
            assert reply.status == 200


async def test_no_more_bodies_are_held_than_there_is_room_for_and_the_rest_wait_unread(monkeypatch):
    """With the gateway away every call stays: those that were let in hold what they may, and all are answered when it is back."""
    monkeypatch.setattr(module, "OPEN_REQUESTS", 2)
    size, is_back = 1000, asyncio.Event()

    async def late(request: web.Request) -> web.Response:
        await is_back.wait()
        return web.json_response({"ok": 1})

    async with Gateway(late) as gateway, relayed(gateway, size) as (relay, http):
        asking = [asyncio.create_task(http.post(f"{relay.base}/v1/responses", data=bytes(size))) for _ in range(6)]
        await until(lambda: len(gateway.seen) == 2)
        asking.append(asyncio.create_task(http.post(f"{relay.base}/v1/responses", data=b"")))
        await until(lambda: len(gateway.seen) == 3)
        assert [len(body) for _, _, body in gateway.seen] == [size, size, 0], "which was asked after those that wait"
        is_back.set()
        assert [reply.status for reply in await asyncio.gather(*asking)] == [200] * 7 and len(gateway.seen) == 7


async def test_a_call_holds_no_more_room_than_its_body_takes(monkeypatch):
    """Of a body in pieces the size is known when it is whole, and what has no body needs no room: none keeps the next call waiting."""
    monkeypatch.setattr(module, "OPEN_REQUESTS", 2)
    is_back = asyncio.Event()

    async def late(request: web.Request) -> web.Response:
        await is_back.wait()
        return web.json_response({"ok": 1})

    async def pieces():
        yield b"a"
        yield b"sked"

    async with Gateway(late) as gateway, relayed(gateway, 1000) as (relay, http):
        asking = [asyncio.create_task(http.post(f"{relay.base}/v1/responses", data=pieces())) for _ in range(4)]
        await until(lambda: len(gateway.seen) == 4)
        asking.append(asyncio.create_task(http.post(f"{relay.base}/v1/responses", data=bytes(1000))))
        await until(lambda: len(gateway.seen) == 5)
        asking.append(asyncio.create_task(http.get(f"{relay.base}/v1/models")))
        await until(lambda: len(gateway.seen) == 6)
        assert [body for _, _, body in gateway.seen] == [b"asked"] * 4 + [bytes(1000), b""]
        is_back.set()
        assert [reply.status for reply in await asyncio.gather(*asking)] == [200] * 6


async def test_connections_beyond_a_number_are_closed_and_others_serve_on(monkeypatch):
    """Each takes a descriptor of the process that all executions share."""
    monkeypatch.setattr(module, "CONNECTIONS_MAX", 3)
    async with Gateway(plain({"ok": 1})) as gateway, relayed(gateway) as (relay, http):
        port = int(relay.base.rpartition(":")[2])
        held = [await asyncio.open_connection("127.0.0.1", port) for _ in range(3)]
        with contextlib.suppress(ConnectionError):
            reader, _ = await asyncio.open_connection("127.0.0.1", port)
            assert await reader.read() == b""
        held[0][1].close()
        await until(lambda: _answers(http, relay))
        for _, writer in held:
            writer.close()


async def _answers(http: aiohttp.ClientSession, relay: Relay) -> bool:
    with contextlib.suppress(aiohttp.ClientError):
        async with http.post(f"{relay.base}/v1/messages", data=b"") as reply:
            return reply.status == 200
    return False


async def test_any_number_of_calls_is_under_way_at_once():
    """A hundred that wait for a cell hold up none of the others; the gateway says how many there may be."""
    go = asyncio.Event()

    async def waits(_request: web.Request) -> web.Response:
        await go.wait()
        return web.json_response({})

    async with Gateway(waits) as gateway, relayed(gateway) as (relay, _):
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(headers={"x-api-key": relay.key}, connector=connector) as http:
            asking = [asyncio.create_task(http.post(f"{relay.base}/v1/messages")) for _ in range(110)]
            await until(lambda: len(gateway.seen) == 110)
            go.set()
            assert {reply.status for reply in await asyncio.gather(*asking)} == {200}


async def test_a_call_is_asked_again_until_it_is_answered():
    """The gateway died, came back and did not know the attempt yet, was busy: the harness sees one answer."""
    answers = (cut, plain({}, 403), plain({}, 503, **{"retry-after": "0.01"}), plain({}, 429), plain({"ok": 1}))
    async with Gateway(*answers) as gateway, relayed(gateway) as (relay, http):
        async with http.post(f"{relay.base}/v1/chat/completions", data=b"asked") as reply:
            assert (reply.status, await reply.json()) == (200, {"ok": 1})
        assert [body for _, _, body in gateway.seen] == [b"asked"] * 5 and relay.retries == 4


@pytest.mark.parametrize("is_stream", [False, True], ids=["unanswered", "in mid stream"])
async def test_a_call_at_a_gateway_that_was_left_is_asked_again_at_the_next(is_stream):
    """It stands still: its connection stays, and it may never say anything again."""

    async def never(request: web.Request) -> web.StreamResponse:
        if is_stream:
            response = web.StreamResponse(headers={"content-type": "text/event-stream"})
            await response.prepare(request)
            await response.write(EVENTS[:30])
        await asyncio.Event().wait()

    async with Gateway(never) as old, Gateway(stream(EVENTS)) as new:
        endpoint = Endpoint(old.base)
        async with (
            Relay(Access(endpoint, "attempts-key"), "codex") as relay,
            aiohttp.ClientSession(headers={"x-api-key": relay.key}) as http,
        ):
            asking = asyncio.create_task(http.post(f"{relay.base}/v1/responses", json={"stream": True}))
            await until(lambda: old.seen)
            endpoint.move(new.base)
            async with await asking as reply:
                data = await reply.read()
            assert data.replace(b": keep-alive\n\n", b"") == EVENTS.replace(b": keep-alive\n\n", b"")
            assert (len(old.seen), len(new.seen), relay.answered) == (1, 1, 1)


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


FAILURE = b'event: error\ndata: {"type": "error", "error": {"type": "api_error", "message": "turns_exceeded"}}\n\n'


async def test_a_stream_that_fails_for_now_is_asked_again_and_one_that_fails_for_good_is_handed_on():
    """Its status went out before: the line before the error says what it would be."""
    busy, wrong = EVENTS + b": status 503\n\n" + FAILURE, b": status 400\n\n" + FAILURE
    async with Gateway(stream(busy), stream(EVENTS), stream(wrong)) as gateway, relayed(gateway) as (relay, http):
        async with http.post(f"{relay.base}/v1/messages", json={"stream": True}) as reply:
            data = await reply.read()
        assert data.replace(b": keep-alive\n\n", b"") == EVENTS.replace(b": keep-alive\n\n", b"")
        assert (relay.answered, relay.retries, relay.refusals) == (1, 1, [])
        async with http.post(f"{relay.base}/v1/messages", json={"stream": True}) as reply:
            assert (await reply.read()).endswith(FAILURE)
        assert relay.answered == 1 and "turns_exceeded" in relay.refusals[0]


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


@pytest.mark.parametrize("path", ["/v1/messages/count_tokens", "/v1/responses/input_tokens/"])
async def test_what_asks_for_a_count_is_no_turn(path):
    """Neither of those that were made, nor one more where all are: an attempt that goes on would end early."""
    told = []

    class Trail:
        async def between(self, is_quiet, is_turn):
            told.append((is_quiet, is_turn))

        def answered(self):
            told.append("answered")

    async with (
        Gateway(plain({"n": 1})) as gateway,
        Relay(Access(lambda: gateway.base, "key"), "noting", trail=Trail()) as relay,
        aiohttp.ClientSession(headers={"authorization": f"Bearer {relay.key}"}) as http,
    ):
        for place in (path, "/v1/messages"):
            async with http.post(relay.base + place, json={}) as reply:
                assert reply.status == 200
    assert told == [(True, False), (True, True), "answered"]

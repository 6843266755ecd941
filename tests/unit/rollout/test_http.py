"""The HTTP side with doubles behind it: streams that wait, harnesses that hang up (AReaL#1498)."""

import asyncio
import json

import aiohttp
import pytest
from yarl import URL

from gyre.bus.server import free_port
from gyre.clock import ManualClock
from gyre.config import Config
from gyre.errors import Unavailable
from services.rollout.core.keys import sign
from services.rollout.gateway import calls as calls_module
from services.rollout.gateway import http as http_module
from services.rollout.gateway import patience
from services.rollout.gateway.callroles import CallRoles
from services.rollout.gateway.http import HttpGateway
from tests.support import until

from .builders import request, tool_text
from .test_calls import MAIN, claims, made  # noqa: F401  a fixture

SECRET = b"s" * 32
BODY = {"model": "m", "messages": [{"role": "user", "content": "go"}]}


@pytest.fixture
async def served(made):  # noqa: F811
    calls, pool, bus, _ = made
    roles = CallRoles(Config(), bus, ManualClock(100.0))
    gateway, address = HttpGateway(calls, roles, SECRET, 10_000, 200), f"127.0.0.1:{free_port()}"
    await gateway.start(address)
    headers = {"authorization": f"Bearer {sign(claims(), SECRET)}"}
    async with aiohttp.ClientSession(f"http://{address}", headers=headers) as http:
        yield http, pool, bus, calls
    await gateway.stop()


async def test_a_stream_that_waits_says_so_and_ends_as_the_plain_reply(served, monkeypatch):
    """Comments keep proxies and clients from giving up; usage and [DONE] are always there (litellm#24176)."""
    http, pool, _, _ = served
    monkeypatch.setattr(http_module, "KEEP_ALIVE_S", 0.05)
    pool.go.clear()
    async with http.post("/v1/chat/completions", json=BODY | {"stream": True}) as reply:
        early = b""
        while early.count(b": keep-alive\n") < 2:
            early += await reply.content.readany()
        pool.go.set()
        text = (early + await reply.read()).decode()
    lines = [line for line in text.split("\n\n") if line]
    assert lines.count(": keep-alive") >= 2 and lines[-1] == "data: [DONE]"
    chunks = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
    assert "".join(c["choices"][0]["delta"].get("content") or "" for c in chunks) == "hello"
    assert chunks[-1]["choices"][0]["finish_reason"] == "stop" and chunks[-1]["usage"]["prompt_tokens"] > 0
    async with http.post("/v1/chat/completions", json=BODY) as plain:
        assert (await plain.json())["choices"][0]["message"] == {"role": "assistant", "content": "hello"}


SIGNS = {
    "/v1/chat/completions": b": keep-alive\n",
    "/v1/messages": b"event: ping\n",
    "/v1/responses": b": keep-alive\n",
}


@pytest.mark.parametrize(
    "path, text",
    [*((path, tool_text("run_tests", "{}")) for path in SIGNS), ("/v1/messages", "<think>\nlong thoughts")],
)
async def test_signs_of_life_come_while_what_is_sampled_is_not_shown(served, monkeypatch, path, text):
    """A call leaves when it is whole, reasoning to who asked for it: tokens that come all the while must not pass for news."""
    http, pool, *_ = served
    monkeypatch.setattr(http_module, "KEEP_ALIVE_S", 0.05)
    heard = asyncio.Event()

    async def sample(work) -> None:
        ids = pool.model.template.encode(text)
        while not heard.is_set():  # each chunk is one more beginning of the same call
            work.on_tokens(ids[:1] if work.ids else ids[:-1])
            work.ids = work.ids or ids[:-1]
            await asyncio.sleep(0.001)
        work.logprobs, work.versions, work.cells, work.finish = (
            [-0.5] * len(work.ids),
            [3] * len(work.ids),
            ["cell-0"],
            "length",
        )

    monkeypatch.setattr(pool, "generate", sample)
    async with (
        asyncio.timeout(30),
        http.post(path, json=BODY | {"input": "go", "max_tokens": 9, "stream": True}) as answer,
    ):
        early = b""
        while early.count(SIGNS[path]) < 3:
            early += await answer.content.readany()
        assert answer.status == 200 and LAST[path] not in early
        heard.set()
        await answer.read()


LIVE = {
    "/v1/chat/completions": b'"content":"hello"',
    "/v1/messages": b'"text":"hello"',
    "/v1/responses": b'"delta":"hello"',
}
FAILED = {
    "/v1/chat/completions": b'data: {"error"',
    "/v1/messages": b'data: {"type":"error"',
    "/v1/responses": b"event: error",
}
LAST = {"/v1/chat/completions": b"[DONE]", "/v1/messages": b"message_stop", "/v1/responses": b"response.completed"}


@pytest.mark.parametrize("path", LIVE)
async def test_content_streams_as_it_is_sampled_and_the_end_when_it_is_on_record(served, path):
    """B1: what ends a reply, and calls, leave after the record is stored."""
    http, _, bus, _ = served
    bus.stored.clear()
    async with http.post(path, json=BODY | {"input": "go", "max_tokens": 9, "stream": True}) as answer:
        early = b""
        while LIVE[path] not in early:
            early += await answer.content.readany()
        assert LAST[path] not in early and not bus.records
        bus.stored.set()
        assert LAST[path] in await answer.read()


async def test_to_claude_code_nothing_of_a_reply_is_said_before_it_is_on_record(served, monkeypatch):
    """It gives up on a stream cut after its first content; after signs of life alone it asks again."""
    http, pool, bus, _ = served
    monkeypatch.setattr(http_module, "KEEP_ALIVE_S", 0.03)
    bus.stored.clear()
    agent = {"user-agent": "claude-cli/2.1.197 (external, cli)"}
    async with http.post("/v1/messages", json=BODY | {"max_tokens": 9, "stream": True}, headers=agent) as answer:
        early = b""
        while early.count(b"event: ping") < 2:
            early += await answer.content.readany()
        assert early.count(b"event: ") == early.count(b"event: ping") and pool.seen, "sampled, not yet on record"
        bus.stored.set()
        assert LAST["/v1/messages"] in await answer.read()


async def test_a_failure_in_mid_stream_is_said_in_it(served, monkeypatch):
    """In the dialect's own words; before the stream it is a status with Retry-After."""
    http, pool, *_ = served

    async def fail(work) -> None:
        await pool.go.wait()
        raise Unavailable("engines fail")

    monkeypatch.setattr(pool, "generate", fail)
    async with http.post("/v1/messages", json=BODY | {"max_tokens": 9, "stream": True}) as answer:
        assert (answer.status, answer.headers["retry-after"]) == (503, "1")
        assert (await answer.json())["error"]["type"] == "api_error"
    monkeypatch.setattr(http_module, "KEEP_ALIVE_S", 0.03)
    for path, words in FAILED.items():
        pool.go.clear()
        async with http.post(path, json=BODY | {"input": "go", "max_tokens": 9, "stream": True}) as answer:
            pool.go.set()
            assert answer.status == 200 and words in (await answer.read()).partition(b": status 503\n\n")[2]


@pytest.mark.parametrize("path", ["//v1/chat/completions", "/v1//chat/completions", "//chat/completions"])
async def test_a_base_url_with_a_slash_at_its_end_is_as_good_as_one_without(served, path):
    """Clients put `/v1/…` behind what they are given, as it is."""
    http, *_ = served
    url = URL(str(http._base_url).rstrip("/") + path, encoded=True)
    async with http.post(url, json=BODY) as plain:
        assert plain.status == 200 and (await plain.json())["choices"]
    async with http.post(URL(str(url).replace("chat/completions", "messages"), encoded=True), json=BODY) as wrong:
        assert (wrong.status, (await wrong.json())["type"]) == (400, "error")


@pytest.mark.parametrize("connection", ["keep-alive", "close"])
async def test_a_stream_to_a_client_of_http_1_0_ends_with_its_connection(served, connection):
    """It knows no chunks: nothing else tells it where the stream ends."""
    http, *_ = served
    reader, writer = await asyncio.open_connection(http._base_url.host, http._base_url.port)
    body = json.dumps(BODY | {"stream": True})
    lines = ["POST /v1/chat/completions HTTP/1.0", f"Connection: {connection}", f"Content-Length: {len(body)}"]
    lines.append(f"Authorization: {http.headers['authorization']}")
    writer.write("\r\n".join([*lines, "", body]).encode())
    async with asyncio.timeout(30.0):
        said = await reader.read()
    assert said.startswith(b"HTTP/1.0 200") and said.endswith(b"data: [DONE]\n\n")
    writer.close()


async def test_a_call_nobody_waits_for_is_given_up_and_marked(served, monkeypatch):
    """B1: what was sampled is on record, cancelled and not delivered; the retry after that is a call of its own."""
    http, pool, bus, _ = served
    monkeypatch.setattr(calls_module, "RETRY_GRACE_S", 0.1)
    pool.go.clear()
    asked = asyncio.create_task(http.post("/v1/chat/completions", json=BODY))
    await until(lambda: pool.seen)
    asked.cancel()
    await asyncio.gather(asked, return_exceptions=True)
    await until(lambda: bus.records)
    assert (bus.records[0].finish_reason, bus.records[0].delivered) == ("cancelled", False)
    async with http.post("/v1/chat/completions", json=BODY) as again:
        assert again.status == 200
    assert [record.call_index for record in bus.records] == [0, 1]
    assert bus.records[1].parent_tokens == bus.records[0].prompt_tokens == len(bus.records[0].prompt_delta) // 4


async def hung_up(http, pool, calls, monkeypatch):
    """A call that is being sampled and whose client is gone; it is not given up by itself."""
    monkeypatch.setattr(calls_module, "RETRY_GRACE_S", 1e6)
    pool.go.clear()
    asked = asyncio.create_task(http.post("/v1/chat/completions", json=BODY))
    await until(lambda: pool.seen)
    asked.cancel()
    await asyncio.gather(asked, return_exceptions=True)
    (running,) = calls._open["g000001-e0-a1"].live
    await until(lambda: running.watchers == 0)
    return running


async def test_a_reply_that_is_sampled_between_a_hang_up_and_its_retry_is_delivered(served, monkeypatch):
    """B1: clients hang up at their own time-out and ask again; the retry is the same call, and its record says that its reply was taken."""
    http, pool, bus, calls = served
    running = await hung_up(http, pool, calls, monkeypatch)
    pool.go.set()
    await until(lambda: running.is_sampled)
    async with http.post("/v1/chat/completions", json=BODY) as again:
        assert (await again.json())["id"].endswith(running.call_id)
    assert [(record.call_id, record.finish_reason, record.delivered) for record in bus.records] == [
        (running.call_id, "stop", True)
    ]


async def test_a_reply_that_nobody_comes_back_for_is_on_record_as_not_delivered(served, monkeypatch):
    """B1: whole, for all its tokens are there; and when its execution ends first, it is on record before the ending."""
    http, pool, bus, calls = served
    running = await hung_up(http, pool, calls, monkeypatch)
    pool.go.set()
    await until(lambda: running.is_sampled)
    monkeypatch.setattr(calls_module, "RETRY_GRACE_S", 0.05)
    calls.hang_up(running.watch())
    await until(lambda: bus.records)
    assert (bus.records[0].finish_reason, bus.records[0].delivered) == ("stop", False)
    monkeypatch.setattr(calls_module, "RETRY_GRACE_S", 1e6)
    pool.seen.clear()
    running = calls.begin(claims(), request([*BODY["messages"], {"role": "user", "content": "on"}]), MAIN)
    calls.hang_up(running)
    await until(lambda: running.is_sampled)
    totals = await calls.close("g000001-e0-a1")
    assert (totals.calls, len(bus.records), bus.records[1].delivered) == (2, 2, False)


@pytest.mark.parametrize(
    "method, path, status", [("GET", "/nowhere", 404), ("GET", "/v1/chat/completions", 405), ("GET", "/healthz", 200)]
)
async def test_other_paths(served, method, path, status):
    http, *_ = served
    async with http.request(method, path) as reply:
        assert reply.status == status
        words = {404: "not_found", 405: "method_not_allowed"}
        assert status == 200 or (await reply.json())["error"]["code"] == words[status]


async def test_bodies_of_one_execution_that_are_on_their_way_are_bounded(served):
    """One key with sixty half-sent bodies held half a gigabyte: the next is refused before it is read, in its API's form; others' are taken."""
    http, *_, calls = served
    calls._attempts.leased("g000002-e0", 1)
    other = f"Bearer {sign(claims(execution_id='g000002-e0', group_id='g000002'), SECRET)}"
    body = json.dumps(BODY | {"max_tokens": 9}).encode().ljust(10_000)

    async def begin(key: str = http.headers["authorization"]) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection(http._base_url.host, http._base_url.port)
        head = f"POST /v1/messages HTTP/1.1\r\nHost: x\r\nAuthorization: {key}\r\nContent-Length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body[:1])
        return reader, writer

    async def one_is_refused(open_: list) -> tuple[bytes, list]:
        """What it is told, and the others."""
        asked = [asyncio.create_task(reader.readuntil(b"}")) for reader, _ in open_]
        done, waiting = await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        (refused,) = done
        return refused.result(), [one for one, task in zip(open_, asked, strict=True) if task is not refused]

    async def end(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(body[1:])
        assert (await reader.readuntil(b"\r\n")).startswith(b"HTTP/1.1 200 ")

    async with asyncio.timeout(60):
        held = [await begin() for _ in range(patience.BODIES_MAX + 1)]
        said, held = await one_is_refused(held)
        assert said.startswith(b"HTTP/1.1 429 ") and b"retry-after: " in said.lower() and b'"rate_limit_error"' in said
        for key in (other, other):
            await end(*await begin(key))
        for one in held[:2]:
            await end(*one)
        _, held = await one_is_refused([*held[2:], *[await begin() for _ in range(3)]])
        assert len(held) == patience.BODIES_MAX
    for _, writer in held:
        writer.close()


async def test_a_body_that_is_too_large_is_told_the_limit(served):
    http, *_ = served
    async with http.post("/v1/messages", data=b"x" * 10_001) as reply:
        assert reply.status == 413 and "10000" in (await reply.json())["error"]["message"]


@pytest.mark.parametrize(
    "head",
    [
        b"POST /v1/messages HTTP/1.1\r\nHost: x\r\nx-a: " + b"a" * 20_000 + b"\r\n\r\n",
        b"POST /v1/messages HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
        b"\x16\x03\x01\x02\x00hello\r\n\r\n",
    ],
    ids=["long header", "two lengths", "no HTTP"],
)
async def test_what_is_no_http_is_told_so_in_the_apis_form_and_not_logged(served, caplog, head):
    http, *_ = served
    reader, writer = await asyncio.open_connection(http._base_url.host, http._base_url.port)
    writer.write(head)
    async with asyncio.timeout(20):
        said, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    assert b" 400 " in said.splitlines()[0] and b"application/json" in said
    assert json.loads(body)["error"]["type"] == "invalid_request_error"
    assert not [record for record in caplog.records if record.name != "asyncio"]  # which tells of other tests' garbage


async def test_a_client_that_goes_just_before_the_first_word_leaves_nothing_in_the_log(served, caplog, monkeypatch):
    http, *_ = served

    async def gone(*_arguments) -> None:
        raise ConnectionResetError("Cannot write to closing transport")

    monkeypatch.setattr(http_module._Line, "say", gone)
    with pytest.raises(aiohttp.ClientError):
        await http.post("/v1/chat/completions", json=BODY | {"stream": True})
    assert not [record for record in caplog.records if record.name.startswith("aiohttp")]

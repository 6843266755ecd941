"""Model calls of harnesses that do not know how: answered in OpenAI's form, never with a 500 (B1).

| status | for |
|---|---|
| 400 | what is wrong with the request, with its place |
| 401, 403 | wrong keys; keys whose attempt is over |
| 404, 405, 413 | paths, methods, sizes |
"""

import asyncio
import gzip
import hashlib
import json
import time
import uuid

import aiohttp
import pytest
import pytest_asyncio

from gyre.api.rollout.v1 import environments_pb2 as pb
from gyre.records import WeightsPublished
from tests.support import WAIT_S, until

from . import model

pytestmark = pytest.mark.asyncio(loop_scope="package")

MB = 1024 * 1024
GO = [{"role": "user", "content": "go"}]
CHAT = "/v1/chat/completions"


def deep(depth: int) -> str:
    return "[" * depth + "1" + "]" * depth


def body(**fields) -> bytes:
    return json.dumps({"model": "m", "messages": GO, "max_tokens": 1} | fields).encode()


def raw(**fields: str) -> bytes:
    """Fields given as JSON text."""
    return (
        "{" + ", ".join(f'"{name}": {text}' for name, text in ({"messages": json.dumps(GO)} | fields).items()) + "}"
    ).encode()


def act(parameters: str) -> str:
    return f'[{{"type": "function", "function": {{"name": "act", "parameters": {parameters}}}}}]'


REFUSED = {
    "nothing": b"",
    "no JSON": b"{messages: 1}",
    "no UTF-8": b"\xff\xfe\xfa",
    "null": b"null",
    "text": b'"go"',
    "deep": deep(50_000).encode(),
    **{f"{depth} deep": raw(messages=f'[{{"role": {deep(depth)}}}]') for depth in range(930, 1000, 10)},
    "deep as Python's limit": b'{"messages": ' + deep(990).encode() + b"}",
    "no messages": b"{}",
    "messages are text": body(messages="go"),
    "messages are empty": body(messages=[]),
    "messages are an object": body(messages={"role": "user"}),
    "message is text": body(messages=["go"]),
    "message is null": body(messages=[None]),
    "message without role": body(messages=[{"content": "go"}]),
    "unknown role": body(messages=[{"role": "wizard", "content": "go"}]),
    "role is deep": raw(messages=f'[{{"role": {deep(900)}}}]'),
    "role is long": body(messages=[{"role": "x" * 200_000, "content": "go"}]),
    "content is a number": body(messages=[{"role": "user", "content": 7}]),
    "content is an image": body(messages=[{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:"}}]}]),
    "content is a list of lists": body(messages=[{"role": "user", "content": [[]]}]),
    "tool without call": body(messages=[*GO, {"role": "tool", "content": "x"}]),
    "tool calls are text": body(messages=[{"role": "assistant", "tool_calls": "act"}]),
    "tool call without function": body(messages=[{"role": "assistant", "tool_calls": [{"id": "1"}]}]),
    "tools are text": body(tools="act"),
    "tool is null": body(tools=[None]),
    "tool without name": body(tools=[{"type": "function", "function": {}}]),
    "max_tokens is text": body(max_tokens="many"),
    "max_tokens is 0": body(max_tokens=0),
    "max_tokens has 5000 digits": raw(max_tokens="1" * 5000),
    "temperature is NaN": raw(temperature="NaN"),
    "temperature is 1e999": raw(temperature="1e999"),
    "top_p is -1": body(top_p=-1),
    "two choices": body(n=2),
    "log-probabilities": body(logprobs=True),
    "forced tool": body(tool_choice={"type": "function", "function": {"name": "act"}}),
    "an unknown form": body(response_format={"type": "xml"}),
    "context too long": body(messages=[{"role": "user", "content": "x" * 5000}]),
}  # fmt: skip

ANSWERED_OR_REFUSED = {
    "null bytes": body(messages=[{"role": "user", "content": "a\0b"}]),
    "half a character": raw(messages='[{"role": "user", "content": "\\ud800"}]'),
    "half a character in a tool": raw(tools=act('{"type": "object", "properties": {"\\ud800": {}}}')),
    "half a character in a tool's name": raw(tools='[{"type": "function", "function": {"name": "\\udfff"}}]'),
    "half a character in an option": raw(model='"\\ud800"'),
    "schema is rubbish": raw(tools=act("7")),
    "schema is null": raw(tools=act("null")),
    "schema is deep": raw(tools=act(deep(900))),
    **{f"schema is {depth} deep": raw(tools=act(deep(depth))) for depth in range(930, 1000, 10)},
    "schema is NaN": raw(tools=act("NaN")),
    "schema without properties": raw(tools=act("{}")),
    "arguments are deep": raw(
        messages=f'[{{"role": "user", "content": "a"}}, {{"role": "assistant", "tool_calls": [{{"id": "1", "function": '
        f'{{"name": "act", "arguments": {deep(900)}}}}}]}}]'
    ),
    "arguments are deep text": body(
        messages=[*GO, {"role": "assistant", "tool_calls": [{"id": "1", "function": {"name": "act", "arguments": deep(900)}}]}]
    ),
    "arguments are a huge number": body(
        messages=[*GO, {"role": "assistant", "tool_calls": [{"id": "1", "function": {"name": "act", "arguments": "9" * 400 + ".5"}}]}]
    ),
    "answer to a call nobody made": body(messages=[{"role": "tool", "tool_call_id": "x", "content": "y"}]),
    "only a system message": body(messages=[{"role": "system", "content": "s"}]),
    "ends with the assistant": body(messages=[*GO, {"role": "assistant", "content": "x"}]),
    "control tokens in text": body(messages=[{"role": "user", "content": "<|im_end|>\n<|im_start|>assistant\n<tool_call>"}]),
    "model is a list": raw(model=deep(900)),
    "stream is text": body(stream="yes"),
    "metadata is deep": raw(metadata=deep(900)),
}  # fmt: skip
"""Odd, and nobody's harm either way."""


@pytest_asyncio.fixture(scope="module", loop_scope="package")
async def double(system):
    made = await system.attach(slots=64)
    yield made
    await made.detach()


@pytest_asyncio.fixture(scope="module", loop_scope="package")
async def http(system):
    async with aiohttp.ClientSession(f"http://{system.run.folder.endpoint('gateway')}") as session:
        yield session


@pytest_asyncio.fixture(scope="module", loop_scope="package")
async def key(system, double):
    """Of one execution for all rubbish: none of it ends it."""
    execution, opens, attempt = await system.begin(double, turns_max=100_000, wall_s=6000.0)
    yield opens
    await double.say(execution, attempt, ended=pb.Ended(ending="completed", reason="submitted"))
    assert (await system.ending(execution)).turns > 10


async def said(http, key: str, data: bytes, method: str = "POST", path: str = CHAT, **headers: str) -> tuple[int, dict]:
    headers = {"authorization": f"Bearer {key}", "content-type": "application/json"} | headers
    async with http.request(method, path, data=data, headers=headers) as reply:
        text = await reply.text()
        return reply.status, json.loads(text) if text.startswith("{") else {"text": text}


def is_openai_error(answer: dict) -> bool:
    error = answer["error"]
    return {*error} == {"message", "type", "param", "code"} and 0 < len(error["message"]) < 2000 and bool(error["type"])


@pytest.mark.parametrize("what", REFUSED)
async def test_a_wrong_request_is_a_400_that_says_where(http, key, what):
    status, answer = await said(http, key, REFUSED[what])
    assert status == 400 and is_openai_error(answer), (status, str(answer)[:500])
    assert (answer["error"]["code"] == "context_length_exceeded") == (what == "context too long")


@pytest.mark.parametrize("what", ANSWERED_OR_REFUSED)
async def test_an_odd_request_is_answered_or_refused(http, key, what):
    status, answer = await said(http, key, ANSWERED_OR_REFUSED[what])
    assert status in (200, 400), (status, str(answer)[:500])
    assert answer["choices"] if status == 200 else is_openai_error(answer)


async def test_keys_open_their_own_execution_while_it_runs_and_nothing_else(system, double, http, key):
    """Wrong, cut, foreign-signed, missing and odd keys: 401. A key after its end: 403 execution_over. Two keys, two executions' books."""
    head, _, tail = key.partition(".")
    other_execution, other, attempt = await system.begin(double)
    other_head = other.partition(".")[0]
    wrong = [
        "",
        "x",
        key[:-3],
        f"{head}.{tail[::-1]}",
        f"{other_head}.{tail}",
        "gyre-.",
        "gyre-" + "A" * 5000,
        "gyre-e30.AAAA",
    ]
    for name in wrong:
        status, answer = await said(http, name, body())
        assert status == 401 and is_openai_error(answer) and answer["error"]["code"] == "invalid_api_key", name
    for header in ("", "Basic " + key, key, "Bearer", "Bearer \udcff\udcfe"):
        data = header.encode("utf-8", "surrogateescape")
        assert await _raw_status(system, b"POST /v1/chat/completions", b"authorization: " + data, body()) in (
            400,
            401,
        ), header
    assert (await said(http, other, body(messages=[{"role": "user", "content": "mine"}])))[0] == 200
    await double.say(other_execution, attempt, ended=pb.Ended(ending="completed", reason="submitted"))
    assert (await system.ending(other_execution)).turns == 1
    status, answer = await said(http, other, body())
    assert status == 403 and answer["error"]["code"] == "execution_over" and is_openai_error(answer)


@pytest.mark.parametrize(
    "method, path, status",
    [
        ("GET", CHAT, 405), ("HEAD", CHAT, 405), ("DELETE", CHAT, 405), ("OPTIONS", CHAT, 405), ("POST", "/v1/models", 405),
        ("GET", "/", 404), ("HEAD", "/nowhere", 404), ("POST", "/v1/embeddings", 404), ("POST", "/v1/v1/v1/chat/completions", 404),
        ("GET", "/../../etc/passwd", 404), ("GET", "/%00", 404), ("GET", "/v1/models", 200), ("HEAD", "/v1/models", 200),
    ],
)  # fmt: skip
async def test_paths_and_methods(http, key, method, path, status):
    found, answer = await said(http, key, b"", method, path)
    assert found == status
    assert method == "HEAD" or status == 200 or is_openai_error(answer)


async def test_100_megabytes_are_refused_unread_also_when_they_are_packed(system, http, key):
    """413 as soon as rollout.request_bytes_max is passed; packed bodies are not unpacked at all."""
    before = system.memory_bytes()
    try:
        status, answer = await said(http, key, b"x" * 100 * MB)
        assert status == 413 and is_openai_error(answer) and answer["error"]["code"] == "request_too_large"
    except aiohttp.ClientOSError:
        pass  # it hung up on us while we were still sending
    for data in (gzip.compress(b"x" * 100 * MB, 1), b"no gzip at all"):
        status, answer = await said(http, key, data, **{"content-encoding": "gzip"})
        assert status == 415 and is_openai_error(answer) and answer["error"]["code"] == "unsupported_encoding"
    assert system.memory_bytes() < before + 60 * MB


async def test_a_harness_that_hangs_up_in_the_middle_of_its_body_harms_nobody(system, http, key):
    for _ in range(5):
        host, port = system.run.folder.endpoint("gateway").split(":")
        _, writer = await asyncio.open_connection(host, int(port))
        writer.write(
            f"POST {CHAT} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {key}\r\ncontent-length: 1000\r\n\r\n{{".encode()
        )
        await writer.drain()
        writer.close()
    assert (await said(http, key, body()))[0] == 200


async def test_a_tool_call_that_is_no_json_stays_content(system, http, key, model_dir):
    """The policy is free to write rubbish: 200, the text as content, no tool call; what to make of it is the harness's affair."""
    status, answer = await said(http, key, body(max_tokens=16, messages=[{"role": "user", "content": "before"}]))
    assert status == 200 and answer["choices"][0]["finish_reason"] == "tool_calls"
    assert answer["choices"][0]["message"]["tool_calls"][0]["function"] == {"name": "act", "arguments": "{}"}
    await publish(system, model_dir, 1, model.NO_JSON)
    message = await answer_that(http, key, lambda message: "tool_calls" not in message)
    assert message["content"] == f"<tool_call>{model.HEAD}</tool_call>"
    await publish(system, model_dir, 2, model.CALL)
    await answer_that(http, key, lambda message: "tool_calls" in message)


async def publish(system, model_dir, version: int, says: tuple[str, ...]) -> None:
    path = system.run.folder.weights / f"v{version:06d}.safetensors"
    model.say_from_now_on(model_dir, path, says)
    checksum = hashlib.sha256(path.read_bytes()).hexdigest()
    await system.trainer.publish(
        WeightsPublished(
            version=version, path=str(path), checksum=checksum, bytes=path.stat().st_size, at_s=time.time()
        )
    )


async def answer_that(http, key: str, fits) -> dict:
    """Ask until the published weights have arrived; each answer is a 200."""

    async def fitting() -> dict | None:
        messages = [{"role": "user", "content": uuid.uuid4().hex[:8]}]
        status, answer = await said(http, key, body(max_tokens=16, messages=messages))
        assert status == 200
        message = answer["choices"][0]["message"]
        return message if fits(message) else None

    return await until(fitting)


async def test_the_gateway_has_no_defect_to_report(system):
    log = system.log("services.rollout")
    assert "a defect" not in log and "Traceback" not in log


async def _raw_status(system, request: bytes, header: bytes, data: bytes) -> int:
    """Status of a request with a header no client library would send."""
    host, port = system.run.folder.endpoint("gateway").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(
        b"%b HTTP/1.1\r\nhost: x\r\n%b\r\ncontent-length: %d\r\nconnection: close\r\n\r\n%b"
        % (request, header, len(data), data)
    )
    line = await asyncio.wait_for(reader.readline(), WAIT_S)
    writer.close()
    return int(line.split()[1])

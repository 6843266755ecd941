"""Headers whose bytes are no text, and what cannot be put on record: never a defect of ours, never after sampling (B1, B5)."""

import asyncio
import json

import pytest

from services.rollout.core.keys import sign
from services.rollout.gateway.forward import FORWARDED

from .test_calls import claims, made  # noqa: F401  a fixture
from .test_forward import relayed  # noqa: F401  a fixture
from .test_http import BODY, SECRET, served  # noqa: F401  a fixture

ODD = (b"x-session-id", b"x-gyre-harness", b"user-agent", b"x-claude-code-agent-id", b"accept", b"x-request-id")


async def ask(address: str, headers: dict[bytes, bytes], path: bytes = b"/v1/chat/completions") -> tuple[int, dict]:
    """(status, reply) of a call whose headers are these bytes: no client's library would send them."""
    reader, writer = await asyncio.open_connection(*address.split(":"))
    body = json.dumps(BODY | {"max_tokens": 9, "input": "go"}).encode()
    said = {
        b"host": b"x", b"connection": b"close", b"authorization": b"Bearer " + sign(claims(), SECRET).encode(),
        b"content-length": str(len(body)).encode(), **headers,
    }  # fmt: skip
    head = b"".join(name + b": " + value + b"\r\n" for name, value in said.items())
    writer.write(b"POST " + path + b" HTTP/1.0\r\n" + head + b"\r\n" + body)
    answer = await asyncio.wait_for(reader.read(), 30.0)
    writer.close()
    return int(answer.split()[1]), json.loads(answer.partition(b"\r\n\r\n")[2])


@pytest.mark.parametrize("name", ODD)
async def test_a_header_of_odd_bytes_is_read_as_text(served, name):  # noqa: F811
    """They come as half characters, which no record can carry."""
    http, _, bus, _ = served
    address = f"{http._base_url.host}:{http._base_url.port}"
    status, reply = await ask(address, {b"x-gyre-role": b"sub-agent", name: b"a\xff\xc3b"})
    assert status == 200 and reply["choices"][0]["message"]["content"] == "hello"
    assert len(bus.records) == 1 and bus.records[0].thread.encode().decode()
    assert name != b"x-session-id" or bus.records[0].thread == "a??b"


async def test_a_header_of_odd_bytes_is_passed_on(relayed):  # noqa: F811
    """To the gateway that serves the session."""
    address, seen, *_ = relayed
    status, _ = await ask(address, {b"x-session-id": b"a\xff\xc3b"})
    assert (status, seen[0].headers["x-session-id"], seen[0].headers[FORWARDED]) == (200, "a??b", "1")


async def test_what_cannot_be_put_on_record_is_a_wrong_request(served, monkeypatch):  # noqa: F811
    """Clients ask again what failed with 5xx, and it would be sampled again and again."""
    http, _, bus, _ = served

    async def give(record, traceparent=""):
        raise UnicodeEncodeError("utf-8", "\udcff", 0, 1, "surrogates not allowed")

    monkeypatch.setattr(bus, "give", give)
    async with http.post("/v1/chat/completions", json=BODY) as reply:
        assert reply.status == 400 and "on record" in (await reply.json())["error"]["message"]

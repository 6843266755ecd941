"""Sessions by URL: a client that is given no key, or sends one of its own, is told whose its calls are by its base URL (B1)."""

import asyncio
import logging

import aiohttp
import anthropic
import openai
import pytest
from yarl import URL

from gyre.keyed_url import with_key
from services.rollout.core.keys import sign
from services.rollout.gateway import paths

from .test_calls import claims, made  # noqa: F401  a fixture
from .test_forward import relayed  # noqa: F401  a fixture
from .test_http import BODY, SECRET, served  # noqa: F401  a fixture

KEY = sign(claims(), SECRET)
OTHER = sign(claims(execution_id="g000002-e0", group_id="g000002"), SECRET)
BOTH = BODY | {"input": "go", "max_tokens": 9}


def at(http: aiohttp.ClientSession, target: str) -> URL:
    """Of the same gateway, as it is written."""
    return URL(f"{http._base_url.origin()}{target}", encoded=True)


@pytest.mark.parametrize(
    "base", [f"/key/{KEY}", f"//key//{KEY}/", f"/key/{KEY}/v1", f"/key/{KEY.replace('.', '%2E')}/v1/v1"]
)
@pytest.mark.parametrize("place", [*paths.CALLS, *paths.COUNTS])
@pytest.mark.parametrize("end", ["", "/", "?beta=true"])
async def test_every_call_is_found_behind_every_base(served, base, place, end):  # noqa: F811
    http, *_ = served
    async with aiohttp.ClientSession() as client, client.post(at(http, f"{base}/{place}{end}"), json=BOTH) as reply:
        assert reply.status == 200, await reply.text()


@pytest.mark.parametrize(
    ("method", "behind", "status"),
    [
        ("HEAD", "", 200), ("HEAD", "/", 200), ("GET", "/v1/models", 200), ("GET", "/models/a%2Fb/", 200), ("GET", "/healthz", 200),
        ("GET", "", 404), ("GET", "/v1/messages", 405), ("POST", "/nowhere", 404), ("POST", f"/key/{KEY}/v1/messages", 404),
    ],
)  # fmt: skip
async def test_other_places_are_as_without_a_key(served, method, behind, status):  # noqa: F811
    http, *_ = served
    url = at(http, f"/key/{KEY}{behind}")
    async with aiohttp.ClientSession() as client, client.request(method, url, json=BOTH) as reply:
        assert reply.status == status
        assert method == "HEAD" or (await reply.json())


async def test_official_clients_need_no_key_of_ours(served):  # noqa: F811
    http, _, bus, _ = served
    base = with_key(str(http._base_url), KEY)
    async with openai.AsyncOpenAI(base_url=f"{base}/v1", api_key="unused", max_retries=0) as client:
        said = await client.chat.completions.create(model="m", messages=BODY["messages"])
        again = await client.responses.create(model="m", input="more")
    async with anthropic.AsyncAnthropic(base_url=base, api_key="sk-ant-own", max_retries=0) as client:
        third = await client.messages.create(model="m", max_tokens=9, messages=[{"role": "user", "content": "third"}])
    assert (said.choices[0].message.content, again.output_text, third.content[0].text) == ("hello",) * 3
    assert {record.execution_id for record in bus.records} == {"g000001-e0"} and len(bus.records) == 3


@pytest.mark.parametrize(
    ("in_url", "headers", "status"),
    [
        (KEY, {"authorization": "Bearer sk-own"}, 200),
        (KEY, {"authorization": f"Bearer {KEY}", "x-api-key": KEY}, 200),
        (KEY, {"authorization": f"Bearer {OTHER}"}, 401),
        (KEY, {"x-api-key": OTHER}, 401),
        (OTHER, {"authorization": f"Bearer {KEY}"}, 401),
        ("wrong", {"authorization": f"Bearer {KEY}"}, 401),
        (KEY + "x", {"x-api-key": KEY}, 401),
        (KEY + "%0D%0A", {}, 401),
        ("%FF", {}, 401),
        ("", {"authorization": f"Bearer {OTHER}", "x-api-key": KEY}, 401),
        ("", {"authorization": f"Bearer {KEY}", "x-api-key": sign(claims(attempt=2), SECRET)}, 401),
    ],
)
async def test_keys_of_two_attempts_are_refused_and_one_in_the_url_must_be_right(served, in_url, headers, status):  # noqa: F811
    """Whichever of two won, a call could be on record as another execution's."""
    http, _, bus, _ = served
    url = at(http, f"{f'/key/{in_url}' if in_url else ''}/v1/messages")
    async with aiohttp.ClientSession() as client, client.post(url, json=BOTH, headers=headers) as reply:
        said = await reply.text()
        assert reply.status == status and (status == 200 or '"authentication_error"' in said)
    assert len(bus.records) == (status == 200)
    assert "gyre-" not in said


async def test_by_url_and_by_header_it_is_the_same_call(served):  # noqa: F811
    """A harness may be told anew how it finds its model: a retry is answered from the record."""
    http, _, bus, _ = served
    async with http.post("/v1/chat/completions", json=BODY) as first, aiohttp.ClientSession() as client:
        async with client.post(at(http, f"/key/{KEY}/chat/completions"), json=BODY) as again:
            assert (await again.json())["id"] == (await first.json())["id"]
    assert len(bus.records) == 1


async def test_the_key_is_passed_on_in_a_header(relayed):  # noqa: F811
    """Errors of a connection to the other gateway may quote a URL, and are logged."""
    address, seen, *_ = relayed
    headers = {"Authorization": "Bearer sk-own", "x-own": "1"}
    async with aiohttp.ClientSession(f"http://{address}") as http:
        async with http.post(f"/key/{KEY}/v1/messages?beta=true", json=BODY, headers=headers) as reply:
            assert reply.status == 200
    assert seen[0].path_qs == "/v1/messages?beta=true" and seen[0].headers["x-own"] == "1"
    assert seen[0].headers.getall("authorization") == [f"Bearer {KEY}"]


@pytest.mark.parametrize(
    "target", [f"/key/{KEY}/v1/messages", f"http://h/key/{KEY}/v1/messages", f"/key/{KEY}/v1/mess[ages"]
)
@pytest.mark.parametrize("broken", ["handler", "server", "version", "length"])
async def test_no_log_and_no_answer_has_a_key(served, monkeypatch, caplog, target, broken):  # noqa: F811
    http, _, _, calls = served
    caplog.set_level(logging.DEBUG)

    async def defect(*_arguments):
        raise ZeroDivisionError("a defect")

    if broken in ("handler", "server"):
        monkeypatch.setattr(calls, "soon" if broken == "handler" else "server", defect)
    version = b"HTTP/9.9" if broken == "version" else b"HTTP/1.1"
    length = b"-5" if broken == "length" else b"2"
    reader, writer = await asyncio.open_connection(http._base_url.host, http._base_url.port)
    writer.write(
        b"POST "
        + target.encode()
        + b" "
        + version
        + b"\r\nHost: x\r\nConnection: close\r\nContent-Length: "
        + length
        + b"\r\n\r\n{}"
    )
    async with asyncio.timeout(20):
        said = (await reader.read()).decode()
    writer.close()
    assert said.startswith("HTTP/1.") and int(said.split()[1]) >= 400
    assert KEY not in said + caplog.text and KEY.partition(".")[2] not in said + caplog.text

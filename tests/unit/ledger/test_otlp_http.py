"""OTLP over HTTP: the same spans, key and bounds as by gRPC, and answers in the words of whoever asked."""

import gzip
import json
import os
import queue
from contextlib import asynccontextmanager

import aiohttp
import pytest
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from gyre.rpc import REQUEST_BYTES_MAX
from services.ledger.otlp_http import JSON, MEMBERS_MAX, PATH, PROTOBUF, OtlpHttpServer
from services.ledger.storage import Stored

KEY = {"Authorization": "Bearer secret"}
TRACE, SPAN = "5b8efff798038103d269b633813fc60c", "eee19b7ec3c1b174"
AS_JSON = {"resourceSpans": [{
    "resource": {"attributes": [{"key": "gyre.run", "value": {"stringValue": "r"}}, {"key": "service.name", "value": {"stringValue": "js"}}]},
    "scopeSpans": [{"spans": [
        {"traceId": TRACE, "spanId": SPAN, "name": "one", "kind": 2, "startTimeUnixNano": "100", "endTimeUnixNano": 200, "later": 1,
         "attributes": [{"key": "n", "value": {"intValue": "7"}}], "links": [{"traceId": TRACE.upper(), "spanId": SPAN}], "status": {"code": 2}},
        {"traceId": TRACE, "spanId": "no hexadecimal", "name": "two"},
    ]}],
}]}  # fmt: skip


class Keeping:
    """A writer that keeps rows, or raises what it is told to."""

    def __init__(self) -> None:
        self.rows: list[dict] = []
        self.error: Exception | None = None

    async def write_spans(self, rows) -> Stored:
        if self.error:
            raise self.error
        self.rows += rows
        return Stored(new=len(rows), refused=[])


@pytest.fixture
def writer() -> Keeping:
    return Keeping()


@pytest.fixture
def serving(writer):
    @asynccontextmanager
    async def serve():
        server = OtlpHttpServer(writer, {"service": "secret", "environment": "other"})
        address = await server.start("127.0.0.1:0")
        async with aiohttp.ClientSession(f"http://{address}") as client:
            try:
                yield client
            finally:
                await server.stop()

    return serve


def as_protobuf(name="one", span=SPAN) -> bytes:
    request = ExportTraceServiceRequest()
    spans = request.resource_spans.add().scope_spans.add().spans
    spans.add(name=name, trace_id=bytes.fromhex(TRACE), span_id=bytes.fromhex(span))
    return request.SerializeToString()


async def test_protobuf_and_json_are_stored_and_answered_in_their_own_encoding(serving, writer):
    async with serving() as client:
        async with client.post(PATH, data=as_protobuf(), headers={**KEY, "Content-Type": PROTOBUF}) as response:
            assert (response.status, response.content_type, await response.read()) == (200, PROTOBUF, b"")
        async with client.post(
            PATH, data=as_protobuf(span="00" * 8), headers={**KEY, "Content-Type": PROTOBUF}
        ) as response:
            answer = ExportTraceServiceResponse.FromString(await response.read())
            assert answer.partial_success.rejected_spans == 1 and answer.partial_success.error_message
        async with client.post(PATH, json=AS_JSON, headers=KEY) as response:
            assert (response.status, response.content_type) == (200, JSON)
            assert (await response.json())["partialSuccess"]["rejectedSpans"] == "1"
        async with client.post(PATH, json={}, headers=KEY) as response:
            assert (response.status, await response.json()) == (200, {})
    assert [(row["name"], row["trace_id"], row["span_id"]) for row in writer.rows] == [("one", TRACE, SPAN)] * 2
    row = writer.rows[1]
    assert (row["run"], row["service"], row["kind"], row["start_ns"], row["end_ns"], row["status"]) == (
        "r",
        "js",
        2,
        100,
        200,
        2,
    )
    assert json.loads(row["attributes_json"]) == {"n": 7} and json.loads(row["links_json"]) == [[TRACE, SPAN]]


async def test_packed_bodies_are_unpacked_as_far_as_a_request_may_be_large(serving, writer):
    """A bomb: four megabytes and a little, packed to some kilobytes."""
    packed = {**KEY, "Content-Type": PROTOBUF, "Content-Encoding": "gzip"}
    async with serving() as client:
        async with client.post(PATH, data=gzip.compress(as_protobuf()), headers=packed) as response:
            assert response.status == 200 and len(writer.rows) == 1
        largest = as_protobuf("x" * (REQUEST_BYTES_MAX - 100))
        async with client.post(PATH, data=gzip.compress(largest), headers=packed) as response:
            assert response.status == 200 and len(writer.rows) == 2
        for body, status in (
            (gzip.compress(as_protobuf("x" * REQUEST_BYTES_MAX)), 413), (gzip.compress(as_protobuf())[:-4], 400),
            (gzip.compress(as_protobuf()) + b"more", 400), (as_protobuf(), 400), (b"", 400),
        ):  # fmt: skip
            async with client.post(PATH, data=body, headers=packed) as response:
                assert (response.status, response.content_type) == (status, PROTOBUF)
                assert Status.FromString(await response.read()).message
    assert len(writer.rows) == 2


async def test_a_packed_body_may_have_several_members_which_together_are_bounded_as_one(serving, writer):
    """As those have that join what was packed in parts. Bombs: members that are too large together, or too many of nothing."""
    packed = {**KEY, "Content-Type": PROTOBUF, "Content-Encoding": "gzip"}
    plain, nothing = as_protobuf("x" * 300_000), gzip.compress(b"")
    middle = os.urandom(200_000).hex().encode()
    filler = ExportTraceServiceRequest.FromString(plain)
    filler.resource_spans[0].resource.attributes.add(key="k").value.bytes_value = middle
    whole = filler.SerializeToString()
    parts = [gzip.compress(whole[at : at + 90_000]) for at in range(0, len(whole), 90_000)]
    third = gzip.compress(as_protobuf("x" * (REQUEST_BYTES_MAX // 3)))
    async with serving() as client:
        for body, status in (
            (b"".join(parts), 200), (nothing * 1_000 + gzip.compress(plain) + nothing, 200), (nothing, 200), (third * 2, 200), (third * 3, 413),
            (nothing * (MEMBERS_MAX + 1), 400), (nothing * 2 + nothing[:5], 400), (parts[0] + b"more" + parts[1], 400),
        ):  # fmt: skip
            async with client.post(PATH, data=body, headers=packed) as response:
                assert response.status == status, await response.read()
    assert [len(row["name"]) for row in writer.rows] == [300_000, 300_000, *[REQUEST_BYTES_MAX // 3] * 2]


@pytest.mark.parametrize(
    ("data", "headers", "status"),
    [
        (b"{}", {"Content-Type": JSON}, 401),
        (b"{}", {"Content-Type": JSON, "Authorization": "Bearer other"}, 401),
        (b"{}", {"Content-Type": JSON, "Authorization": "Bearer "}, 401),
        (b"x" * (REQUEST_BYTES_MAX + 1), {**KEY, "Content-Type": PROTOBUF}, 413),
        (b"{}", {**KEY, "Content-Type": "text/plain"}, 415),
        (b"{}", {**KEY}, 415),
        (b"{}", {**KEY, "Content-Type": JSON, "Content-Encoding": "br"}, 415),
        (b"\xff\xff", {**KEY, "Content-Type": PROTOBUF}, 400),
        *((body, {**KEY, "Content-Type": JSON}, 400) for body in (
            b"", b"{", b"\xff", b"[]", b"7", b"null", b"[" * 100_000, b'{"resourceSpans": 5}', b'{"resourceSpans": [5]}',
            b'{"resourceSpans": [{"scopeSpans": [{"spans": ["x"]}]}]}', b'{"resourceSpans": [{"scopeSpans": [{"spans": [{"links": [7]}]}]}]}',
            b'{"resourceSpans": [{"scopeSpans": [{"spans": [{"startTimeUnixNano": -1}]}]}]}',
            b'{"resourceSpans": [{"scopeSpans": [{"spans": [{"kind": 1e99}]}]}]}',
            b'{"resourceSpans": [{"resource": {"attributes": [{"key": "a", "value": '
            + b'{"arrayValue": {"values": [' * 200 + b"]}}" * 200 + b"}]}}]}",
        )),
    ],
)  # fmt: skip
async def test_what_cannot_be_taken_is_answered_by_its_own_status(serving, writer, data, headers, status):
    async with serving() as client, client.post(PATH, data=data, headers=headers) as response:
        assert response.status == status
        if headers.get("Content-Type") == PROTOBUF:
            assert Status.FromString(await response.read()).message
        else:
            assert (await response.json())["message"]
    assert writer.rows == []


async def test_what_may_be_sent_again_is_said(serving, writer):
    """429 and 503 are the statuses after which exporters try again."""
    async with serving() as client:
        for error, status in ((queue.Full(), 429), (RuntimeError("no disk"), 503)):
            writer.error = error
            async with client.post(PATH, json=AS_JSON, headers=KEY) as response:
                assert response.status == status and (await response.json())["message"]
                assert (response.headers.get("Retry-After") == "1") == (status == 429)
        async with client.get(PATH, headers=KEY) as response:
            assert response.status == 405 and response.headers["Allow"] == "POST"
        async with client.post("/v1/logs", json={}, headers=KEY) as response:
            assert response.status == 404

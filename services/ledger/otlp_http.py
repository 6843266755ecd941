"""OTLP over HTTP: `POST /v1/traces`, as protobuf or JSON, where exporters send by default. What gRPC's receiver takes, with its key and its bounds.

| answer | when |
|---|---|
| 200 | stored; `partial_success` counts the spans that were rejected |
| 400 | the body is no ExportTraceServiceRequest, or not what its headers say |
| 401 | no or a wrong service key in `Authorization: Bearer …` |
| 413 | more than REQUEST_BYTES_MAX, as sent or unpacked |
| 415 | another type than `application/x-protobuf` or `application/json`, another encoding than gzip |
| 429, 503 | too many spans wait to be stored, or the database does not take them: send it again later |

Answers are in the request's own type; errors are google.rpc.Status, as the specification has it.
"""

import asyncio
import binascii
import contextlib
import json
import logging
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from aiohttp import web
from google.protobuf import json_format
from google.protobuf.message import DecodeError, Message
from google.rpc import code_pb2, status_pb2
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from gyre.errors import GyreError, InvalidInput, Overloaded, Unavailable
from gyre.rpc import REQUEST_BYTES_MAX
from gyre.rpc.auth import is_allowed
from gyre.service import Context
from services.ledger import otlp
from services.ledger.listening import Listener
from services.ledger.storage import Writer

log = logging.getLogger(__name__)

PATH = "/v1/traces"
PROTOBUF, JSON = "application/x-protobuf", "application/json"
MEMBERS_MAX = 1024
"""Of one gzip body: empty ones cost no bytes and take time."""
PIECE_BYTES = 64 * 1024
_METHOD = f"/{otlp.FULL_NAME}/Export"
_GZIP = 16 + zlib.MAX_WBITS
_IDS = ("traceId", "spanId", "parentSpanId", "trace_id", "span_id", "parent_span_id")
_CODES = {
    400: code_pb2.INVALID_ARGUMENT, 401: code_pb2.UNAUTHENTICATED, 404: code_pb2.NOT_FOUND, 405: code_pb2.UNIMPLEMENTED,
    413: code_pb2.RESOURCE_EXHAUSTED, 415: code_pb2.INVALID_ARGUMENT, 429: code_pb2.RESOURCE_EXHAUSTED, 503: code_pb2.UNAVAILABLE,
}  # fmt: skip


class OtlpHttpServer(Listener):
    """Stores what exporters send. `start`, then `stop`."""

    what = "OTLP over HTTP"

    def __init__(self, writer: Writer, keys: dict[str, str]) -> None:
        """`keys`: role → key, as gRPC's server has them."""
        self._writer, self._keys = writer, keys
        app = web.Application(client_max_size=REQUEST_BYTES_MAX, middlewares=[_guard])
        app.router.add_post(PATH, self._export)
        super().__init__(app, auto_decompress=False)

    async def _export(self, request: web.Request) -> web.Response:
        if not is_allowed(_METHOD, request.headers.get("Authorization", ""), self._keys):
            raise web.HTTPUnauthorized(reason="wrong or missing key in `Authorization: Bearer …`")
        if request.content_type not in (PROTOBUF, JSON):
            raise web.HTTPUnsupportedMediaType(reason=f"a body is {PROTOBUF} or {JSON}")
        encoding = request.headers.get("Content-Encoding", "identity").strip().lower()
        if encoding not in ("gzip", "identity"):
            raise web.HTTPUnsupportedMediaType(reason="a body is packed by gzip or not at all")
        body = await request.read()
        asked = await asyncio.to_thread(_read, body, encoding == "gzip", request.content_type)
        return _said(200, await otlp.store(self._writer, asked.resource_spans), request)


@contextlib.asynccontextmanager
async def otlp_http(context: Context, writer: Writer) -> AsyncIterator[None]:
    """Takes spans by HTTP. Books are kept, and spans taken by gRPC, without it too: what keeps it from listening is logged."""
    server = OtlpHttpServer(writer, context.rpc_keys())
    try:
        log.info("OTLP at http://%s%s", await server.start(context.folder.endpoint("otlp")), PATH)
    except GyreError as error:
        log.warning("no OTLP over HTTP: %s", error)
    try:
        yield
    finally:
        await server.stop()


@web.middleware
async def _guard(request: web.Request, handler: Callable[[web.Request], Awaitable[web.Response]]) -> web.Response:
    """Errors in the request's own type."""
    headers = {}
    try:
        return await handler(request)
    except web.HTTPException as error:
        status, words = error.status, error.reason
        headers = {name: error.headers[name] for name in ("Allow",) if name in error.headers}
    except InvalidInput as error:
        status, words = 400, str(error)
    except Overloaded as error:
        status, words, headers = 429, str(error), {"Retry-After": str(max(1, round(error.retry_after_s)))}
    except Unavailable as error:
        status, words = 503, str(error)
    answer = status_pb2.Status(code=_CODES.get(status, code_pb2.UNKNOWN), message=words)
    response = _said(status, answer, request)
    response.headers.update(headers)
    return response


def _said(status: int, message: Message, request: web.Request) -> web.Response:
    if request.content_type == PROTOBUF:
        return web.Response(status=status, body=message.SerializeToString(), content_type=PROTOBUF)
    return web.Response(status=status, body=json_format.MessageToJson(message, indent=None).encode(), content_type=JSON)


def _read(body: bytes, is_packed: bool, kind: str) -> ExportTraceServiceRequest:
    """Raises InvalidInput, HTTPRequestEntityTooLarge."""
    plain = _unpacked(body) if is_packed else body
    try:
        if kind == PROTOBUF:
            return ExportTraceServiceRequest.FromString(plain)
        return json_format.ParseDict(
            _with_bytes(json.loads(plain)), ExportTraceServiceRequest(), ignore_unknown_fields=True
        )
    except (
        DecodeError,
        json_format.ParseError,
        ValueError,
        TypeError,
        AttributeError,
        OverflowError,
        RecursionError,
    ) as error:
        raise InvalidInput(f"the body is no ExportTraceServiceRequest: {error}"[:300]) from error


def _unpacked(body: bytes) -> bytes:
    """Its members one after the other (RFC 1952). Never makes more than a request may have, however small it was packed; raises as `_read`."""
    plain, at, members = bytearray(), 0, 0
    while at < len(body) or not members:
        if (members := members + 1) > MEMBERS_MAX:
            raise InvalidInput(f"the body has more than {MEMBERS_MAX} gzip members")
        at = _unpack_member(body, at, plain)
    return bytes(plain)


def _unpack_member(body: bytes, at: int, plain: bytearray) -> int:
    """The member of `body` that begins at `at` is added to `plain`; where it ends. In pieces, for what follows a member is copied with its last."""
    unpacking = zlib.decompressobj(_GZIP)
    while not unpacking.eof:
        if at == len(body):
            raise InvalidInput("the body is not gzip: it ends too early")
        piece = body[at : at + PIECE_BYTES]
        at += len(piece)
        try:
            plain += unpacking.decompress(piece, REQUEST_BYTES_MAX + 1 - len(plain))
        except zlib.error as error:
            raise InvalidInput(f"the body is not gzip: {error}") from error
        if len(plain) > REQUEST_BYTES_MAX:
            raise web.HTTPRequestEntityTooLarge(max_size=REQUEST_BYTES_MAX, actual_size=len(plain))
    return at - len(unpacking.unused_data)


def _with_bytes(said: Any) -> Any:
    """OTLP's JSON writes ids in hexadecimal where protobuf's has base64. What is no hexadecimal becomes no id, of which spans are rejected."""
    for group in said.get("resourceSpans", said.get("resource_spans")) or ():
        for scope in group.get("scopeSpans", group.get("scope_spans")) or ():
            for span in scope.get("spans") or ():
                for one in (span, *(span.get("links") or ())):
                    one.update({name: _base64(one[name]) for name in _IDS if one.get(name)})
    return said


def _base64(written: Any) -> str:
    try:
        return binascii.b2a_base64(bytes.fromhex(written), newline=False).decode()
    except (ValueError, TypeError):
        return ""

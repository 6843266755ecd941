"""OTLP receiver: any OpenTelemetry exporter that holds the service key may send its spans here, by gRPC; otlp_http.py is the same for HTTP."""

import queue
from collections.abc import Iterable
from typing import Any

import grpc.aio
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc

from gyre.errors import GyreError, Overloaded, Unavailable
from gyre.rpc import abort_with
from services.ledger.core.parts import in_parts
from services.ledger.core.rows import INT64_MAX, text, to_json
from services.ledger.storage import Writer

FULL_NAME = "opentelemetry.proto.collector.trace.v1.TraceService"
SPANS_AT_ONCE = 1_000
"""Read and stored together: 4 MiB hold a hundred thousand spans, and facts come in between."""
ID_BYTES = {"trace": 16, "span": 8}


class TraceReceiver(trace_service_pb2_grpc.TraceServiceServicer):
    """Answers when the spans are stored. Spans without valid ids are counted back as rejected."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer

    async def Export(self, request, context: grpc.aio.ServicerContext):
        try:
            return await store(self._writer, request.resource_spans)
        except GyreError as error:
            await abort_with(context, error)


async def store(writer: Writer, resource_spans: Iterable[Any]) -> trace_service_pb2.ExportTraceServiceResponse:
    """Store the spans; the exporter's answer. Raises Overloaded, Unavailable."""
    refused = 0
    for rows in in_parts(span_rows(resource_spans), SPANS_AT_ONCE):
        valid = [row for row in rows if row["trace_id"] and row["span_id"]]
        refused += len(rows) - len(valid)
        if valid:
            try:
                stored = await writer.write_spans(valid)
            except queue.Full as error:
                raise Overloaded("too many spans are waiting to be stored") from error
            except Exception as error:
                raise Unavailable(f"spans were not stored: {error}") from error
            refused += len(stored.refused)
    response = trace_service_pb2.ExportTraceServiceResponse()
    if refused:
        response.partial_success.rejected_spans = refused
        response.partial_success.error_message = "spans need valid ids and storable values"
    return response


def span_rows(resource_spans: Iterable[Any]) -> Iterable[dict[str, Any]]:
    """OTLP ResourceSpans → rows of the table `spans`; `run` is empty where the resource names none, ids where they are none."""
    for group in resource_spans:
        resource = _attributes(group.resource.attributes)
        origin = {
            name: text(str(resource.get(key, ""))) for name, key in (("run", "gyre.run"), ("service", "service.name"))
        }
        for scope in group.scope_spans:
            for span in scope.spans:
                yield {**origin, **_span(span)}


def _span(span: Any) -> dict[str, Any]:
    status = span.status
    return {
        "trace_id": _hex(span.trace_id, "trace"), "span_id": _hex(span.span_id, "span"), "parent_id": span.parent_span_id.hex(),
        "name": text(span.name), "kind": span.kind,
        "start_ns": min(span.start_time_unix_nano, INT64_MAX), "end_ns": min(span.end_time_unix_nano, INT64_MAX),
        "attributes_json": to_json(_attributes(span.attributes)),
        "links_json": to_json([[link.trace_id.hex(), link.span_id.hex()] for link in span.links]) if span.links else "[]",
        "links_dropped": span.dropped_links_count,
        "status": status.code, "status_message": text(status.message),
    }  # fmt: skip


def _hex(raw: bytes, kind: str) -> str:
    return raw.hex() if len(raw) == ID_BYTES[kind] and any(raw) else ""


def _attributes(pairs: Iterable[Any]) -> dict[str, Any]:
    return {pair.key: _value(pair.value) for pair in pairs}


def _value(value: Any) -> Any:
    """OTLP AnyValue → what JSON can hold; bytes as hexadecimal."""
    if said := value.string_value or value.int_value:  # nearly all of them, and asking for the kind takes longer
        return said
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(item) for item in value.array_value.values]
    if kind == "kvlist_value":
        return _attributes(value.kvlist_value.values)
    if kind == "bytes_value":
        return value.bytes_value.hex()
    return getattr(value, kind) if kind else None

"""An OTLP exporter by gRPC that is told to come again later does so: as OpenTelemetry's own does, and as rich errors say it."""

import asyncio
import queue
import time

import grpc
import grpc.aio
import pytest
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.trace import SpanContext

from gyre.errors import Overloaded
from gyre.rpc import RpcServer, abort_with, open_channel
from services.ledger.otlp import FULL_NAME, TraceReceiver
from services.ledger.storage import Stored

RETRY_S = 1.5
"""Longer than the exporter would wait by itself."""


class Failing:
    """A writer that fails."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    async def write_spans(self, rows) -> Stored:
        raise self.error


class FullAtFirst(trace_service_pb2_grpc.TraceServiceServicer):
    def __init__(self) -> None:
        self.calls_s: list[float] = []

    async def Export(self, request, context):
        self.calls_s.append(time.monotonic())
        if len(self.calls_s) == 1:
            await abort_with(context, Overloaded("full", RETRY_S))
        return ExportTraceServiceResponse()


async def served(servicer: trace_service_pb2_grpc.TraceServiceServicer) -> RpcServer:
    server = RpcServer("127.0.0.1:0")
    server.add(trace_service_pb2_grpc.add_TraceServiceServicer_to_server, servicer, FULL_NAME)
    await server.start()
    return server


def request() -> ExportTraceServiceRequest:
    asked = ExportTraceServiceRequest()
    asked.resource_spans.add().scope_spans.add().spans.add(name="one", trace_id=b"t" * 16, span_id=b"s" * 8)
    return asked


async def refusal(error: Exception) -> grpc.aio.AioRpcError:
    server = await served(TraceReceiver(Failing(error)))
    async with open_channel(f"127.0.0.1:{server.port}") as channel:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await trace_service_pb2_grpc.TraceServiceStub(channel).Export(request())
    await server.stop(0)
    return refused.value


async def test_a_full_ledger_says_when_to_come_again_in_every_clients_words():
    refused = await refusal(queue.Full())
    said = dict(refused.trailing_metadata())
    assert refused.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    status, again = Status.FromString(said["grpc-status-details-bin"]), RetryInfo()
    assert (status.code, status.message) == (8, refused.details())
    assert status.details[0].Unpack(again) and again.retry_delay.ToTimedelta().total_seconds() == 1.0
    assert RetryInfo.FromString(said["google.rpc.retryinfo-bin"]) == again
    assert float(said["retry-after-s"]) == 1.0


async def test_where_it_is_not_known_when_exporters_go_by_their_own_pause():
    refused = await refusal(OSError("the disk is away"))
    assert refused.code() == grpc.StatusCode.UNAVAILABLE
    assert "grpc-status-details-bin" not in dict(refused.trailing_metadata())


async def test_opentelemetrys_exporter_waits_as_long_as_it_was_told_and_loses_nothing():
    ledger = FullAtFirst()
    server = await served(ledger)
    exporter = OTLPSpanExporter(endpoint=f"http://127.0.0.1:{server.port}", insecure=True)
    span = ReadableSpan("one", SpanContext(trace_id=1, span_id=2, is_remote=False), start_time=1, end_time=2)
    try:
        assert await asyncio.to_thread(exporter.export, [span]) == SpanExportResult.SUCCESS
    finally:
        await asyncio.to_thread(exporter.shutdown)
        await server.stop(0)
    first_s, second_s = ledger.calls_s
    assert second_s - first_s >= RETRY_S

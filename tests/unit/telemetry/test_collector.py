"""A collector that is late, busy or says no (E)."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from gyre.bus.server import free_port
from gyre.telemetry import outbox as module
from gyre.telemetry.outbox import Collector, Outbox
from gyre.telemetry.wire import Ids, span_bytes
from tests.kept_spans import attributes_of
from tests.support import until

SPAN = span_bytes("work", Ids(b"t" * 16, b"s" * 8), b"", 1, 2, {})


def retry_info(delay_s: float) -> tuple[tuple[str, bytes], ...]:
    """Of a refusal that says when to come again, as google.rpc has it."""
    status, asked = Status(code=8, message="no"), RetryInfo()
    asked.retry_delay.FromMilliseconds(int(delay_s * 1000))
    status.details.add().Pack(asked)
    return (("grpc-status-details-bin", status.SerializeToString()),)


class Receiver(trace_service_pb2_grpc.TraceServiceServicer):
    """Refuses with each of `refusals` in turn, then takes everything."""

    def __init__(self, *refusals: grpc.StatusCode, trailing: tuple = ()) -> None:
        self.refusals, self.trailing = list(refusals), trailing
        self.requests: list = []
        self.headers: list[dict] = []

    def Export(self, request, context):
        if self.refusals:
            context.set_trailing_metadata(self.trailing)
            context.abort(self.refusals.pop(0), "no")
        self.requests.append(request)
        self.headers.append(dict(context.invocation_metadata()))
        return ExportTraceServiceResponse()


class Serving:
    """`with Serving(port, receiver):`"""

    def __init__(self, port: int, receiver: Receiver) -> None:
        self._server = grpc.server(ThreadPoolExecutor(2))
        trace_service_pb2_grpc.add_TraceServiceServicer_to_server(receiver, self._server)
        self._server.add_insecure_port(f"127.0.0.1:{port}")

    def __enter__(self) -> None:
        self._server.start()

    def __exit__(self, *raised) -> None:
        self._server.stop(None).wait()


@pytest.fixture
def at(monkeypatch) -> Iterator[tuple[int, Collector, Outbox]]:
    """A port at which a collector is to be, and what sends to it."""
    monkeypatch.setattr(module, "PAUSE_S", 0.01)
    port = free_port()
    collector = Collector(f"127.0.0.1:{port}", {"service.name": "me"}, (("authorization", "Bearer x"),))
    outbox = Outbox(collector.send)
    yield port, collector, outbox
    outbox.close()
    collector.close()


def test_what_ended_while_the_collector_was_away_arrives_when_it_is_back(at):
    """A ledger that starts late, or anew: nothing is lost, and it is told who sends."""
    port, _, outbox = at
    outbox.put(SPAN)
    assert not outbox.flush(0.0)
    receiver = Receiver()
    with Serving(port, receiver):
        assert outbox.flush(60) and outbox.dropped == 0
    (request,) = receiver.requests
    assert attributes_of(request.resource_spans[0].resource) == {"service.name": "me"}
    assert receiver.headers[0]["authorization"] == "Bearer x"
    outbox.put(SPAN)
    anew = Receiver()
    with Serving(port, anew):
        assert outbox.flush(60) and outbox.dropped == 0
    assert len(anew.requests) == 1


@pytest.mark.parametrize(
    ("code", "trailing"),
    [
        (grpc.StatusCode.UNAVAILABLE, ()), (grpc.StatusCode.RESOURCE_EXHAUSTED, retry_info(0.02)),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, (("retry-after-s", "0.02"),)),
    ],
)  # fmt: skip
def test_a_busy_collector_is_asked_again(at, code, trailing):
    """What OTLP calls retryable: a collector that is full says when to come again, the ledger in its own words."""
    port, _, outbox = at
    receiver = Receiver(code, code, trailing=trailing)
    with Serving(port, receiver):
        outbox.put(SPAN)
        assert outbox.flush(60)
    assert (outbox.dropped, len(receiver.requests)) == (0, 1)


@pytest.mark.parametrize("code", [grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.RESOURCE_EXHAUSTED])
def test_a_collector_that_says_no_is_not_asked_again(at, code):
    """A wrong key, a request larger than it takes: counted, and what comes later is tried."""
    port, _, outbox = at
    receiver = Receiver(code)
    with Serving(port, receiver):
        outbox.put(SPAN)
        assert outbox.flush(60) and outbox.dropped == 1
        outbox.put(SPAN)
        assert outbox.flush(60) and outbox.dropped == 1
    assert len(receiver.requests) == 1


def test_a_span_that_no_request_holds_keeps_no_other_back(at):
    """Counted where it comes; the others of its time arrive."""
    port, _, outbox = at
    receiver = Receiver()
    for said in (SPAN, b"x" * (module.EXPORT_BYTES_MAX + 1), SPAN):
        outbox.put(said)
    with Serving(port, receiver):
        assert outbox.flush(60)
    (request,) = receiver.requests
    assert len(request.resource_spans[0].scope_spans[0].spans) == 2 and outbox.dropped == 1


async def test_the_end_waits_for_no_collector_and_counts_what_it_leaves(at):
    """A process that stops while its collector is away: one request is under way, one span waits."""
    _, collector, outbox = at
    outbox.put(SPAN)
    assert not outbox.flush(0.0)
    await until(lambda: outbox.waiting == 0)
    outbox.put(SPAN)
    outbox.close()
    assert outbox.dropped == 1
    collector.close()
    outbox.join(60)
    assert outbox.dropped == 2 and outbox.flush(0.0)

"""Spans on their way to one collector: a bounded queue and the thread that empties it.

Work never waits for it: what comes when the queue is full takes the place of the oldest, which is counted, as is what no collector took.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import grpc
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from gyre.telemetry.wire import request_bytes

log = logging.getLogger(__name__)

QUEUE_SPANS_MAX = 32_768
"""Spans waiting for export: some ten megabytes."""
EXPORT_EVERY_S = 2.0
"""A request costs as much as a few dozen spans, and a trace is looked at by people."""
EXPORT_SPANS_MAX = 1024
EXPORT_BYTES_MAX = 1024 * 1024
"""Nothing is added to a request of so much, and no span has more: gRPC takes 4 MiB."""
EXPORT_TRIES_S = 20.0
"""How long one request is tried: the ledger's new start takes less. Meanwhile the queue fills."""
PAUSE_S = 0.5

_METHOD = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
_AGAIN = frozenset({
    grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.ABORTED, grpc.StatusCode.CANCELLED,
    grpc.StatusCode.OUT_OF_RANGE, grpc.StatusCode.DATA_LOSS,
})  # fmt: skip
"""What OTLP asks to try again; RESOURCE_EXHAUSTED only where the collector says when: a request that is too large for it always is."""

Send = Callable[[Sequence[bytes]], int]
"""Given what `span_bytes` made; how many of them were rejected. Raises where none was taken."""


class Collector:
    """A gRPC OTLP receiver."""

    def __init__(self, endpoint: str, resource: Mapping[str, Any], headers: Sequence[tuple[str, str]] = ()) -> None:
        """`endpoint`: host:port. `resource`: who sends."""
        self._resource, self._headers = resource, headers
        self._closed = threading.Event()
        reconnect = [(f"grpc.{which}_reconnect_backoff_ms", 500) for which in ("initial", "min", "max")]
        self._channel = grpc.insecure_channel(endpoint, options=[*reconnect, ("grpc.enable_http_proxy", 0)])
        self._export = self._channel.unary_unary(_METHOD, response_deserializer=ExportTraceServiceResponse.FromString)

    def send(self, spans: Sequence[bytes]) -> int:
        """How many were rejected. Raises grpc.RpcError when the collector takes none in EXPORT_TRIES_S."""
        request, until_s = request_bytes(self._resource, spans), time.monotonic() + EXPORT_TRIES_S
        while True:
            left_s = until_s - time.monotonic()
            try:
                answer = self._export(request, timeout=max(left_s, 0.0), metadata=self._headers, wait_for_ready=True)
                return answer.partial_success.rejected_spans
            except grpc.RpcError as error:
                pause_s = _pause_s(error)
                if pause_s is None or left_s <= pause_s or self._closed.wait(pause_s):
                    raise

    def close(self) -> None:
        self._closed.set()
        self._channel.close()


def _pause_s(error: grpc.RpcError) -> float | None:
    """Until the same request is tried again; None: never."""
    if error.code() in _AGAIN:
        return PAUSE_S
    if error.code() != grpc.StatusCode.RESOURCE_EXHAUSTED:
        return None
    said = dict(error.trailing_metadata() or ())
    if own := said.get("retry-after-s"):  # the ledger's
        return max(PAUSE_S, float(own))
    asked = RetryInfo()
    for detail in Status.FromString(said.get("grpc-status-details-bin", b"")).details:
        if detail.Unpack(asked):
            return max(PAUSE_S, asked.retry_delay.ToTimedelta().total_seconds())
    return None


class Outbox:
    """`put` from any thread; `flush` and `close` at the end."""

    def __init__(self, send: Send, spans_max: int = QUEUE_SPANS_MAX, every_s: float = EXPORT_EVERY_S) -> None:
        self._send, self._spans_max, self._every_s = send, spans_max, every_s
        self._waiting: deque[bytes] = deque()
        self._changed = threading.Condition()
        self._put = self._gone = 0
        """Spans that came, and that are over: taken, rejected or dropped."""
        self._flushed = 0
        """How many of those that came are wanted at once."""
        self._is_closing = False
        self.dropped = 0
        """Spans that the collector should have and does not."""
        self._thread = threading.Thread(target=self._work, name="telemetry", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """Spans that no request has yet."""
        return len(self._waiting)

    def put(self, span: bytes) -> None:
        """What `span_bytes` made."""
        with self._changed:
            if self._is_closing or len(span) > EXPORT_BYTES_MAX:
                self.dropped += 1
                return
            self._put += 1
            self._waiting.append(span)
            if len(self._waiting) > self._spans_max:
                self._waiting.popleft()
                self._gone += 1
                self.dropped += 1
            if len(self._waiting) == EXPORT_SPANS_MAX:
                self._changed.notify_all()

    def flush(self, timeout_s: float) -> bool:
        """Send what is here; whether all of it is over in time."""
        with self._changed:
            self._flushed = wanted = self._put
            self._changed.notify_all()
            return self._changed.wait_for(lambda: self._gone >= wanted, timeout_s)

    def close(self) -> None:
        """Nothing is sent any more: what waits is dropped."""
        with self._changed:
            self._is_closing = True
            self.dropped += len(self._waiting)
            self._gone += len(self._waiting)
            self._waiting.clear()
            self._changed.notify_all()

    def join(self, timeout_s: float) -> None:
        """After `close`: wait for the request that is under way, which its collector's end cuts off."""
        self._thread.join(timeout_s)

    def _is_due(self) -> bool:
        return self._is_closing or self._gone < self._flushed or len(self._waiting) >= EXPORT_SPANS_MAX

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(self._is_due, self._every_s)
            while batch := self._taken():
                self._export(batch)
            if self._is_closing:
                return

    def _taken(self) -> list[bytes]:
        """The oldest, as many as one request takes."""
        batch: list[bytes] = []
        size = 0
        with self._changed:
            while self._waiting and len(batch) < EXPORT_SPANS_MAX and size < EXPORT_BYTES_MAX:
                batch.append(self._waiting.popleft())
                size += len(batch[-1])
        return batch

    def _export(self, batch: list[bytes]) -> None:
        try:
            failed = self._send(batch)
        except Exception as error:  # telemetry never breaks work
            log.debug("%d spans were not taken: %s", len(batch), error)
            failed = len(batch)
        with self._changed:
            self.dropped += failed
            self._gone += len(batch)
            self._changed.notify_all()

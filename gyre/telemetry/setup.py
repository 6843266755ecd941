"""Provider and exporter of one process."""

import logging
import threading
from collections.abc import Sequence
from typing import Any

from opentelemetry import trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanLimits, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from gyre.config import Config
from gyre.errors import GyreError
from gyre.rpc.auth import read_key
from gyre.run_folder import RunFolder

log = logging.getLogger(__name__)

LINKS_MAX = 4096
"""A step links to each of its samples; the SDK's own limit of 128 would drop most of them."""
QUEUE_SPANS_MAX = 32_768
"""Spans waiting for export; beyond it they are dropped and counted rather than hold up work."""
EXPORT_EVERY_MS = 1000
EXPORT_SPANS_MAX = 1024
"""Spans of one request: well below gRPC's 4 MiB at a kilobyte or two each."""

_provider: TracerProvider | None = None
_counts: "list[_Counts]" = []


class _Counts(SpanProcessor):
    """How many spans no collector has: the queue was full when they ended, or the export failed."""

    def __init__(self, queue_spans_max: int) -> None:
        self._queue_spans_max = queue_spans_max
        self._lock = threading.Lock()
        self._waiting = 0
        self.dropped = 0

    def on_end(self, span: ReadableSpan) -> None:
        """Seen before the queue takes the span; a full queue gives up its oldest."""
        with self._lock:
            if self._waiting < self._queue_spans_max:
                self._waiting += 1
            else:
                self.dropped += 1

    def left_queue(self, spans: int) -> None:
        with self._lock:
            self._waiting -= spans

    def failed(self, spans: int) -> None:
        with self._lock:
            self.dropped += spans


class _Counting(SpanExporter):
    """Tells the counts what became of each batch."""

    def __init__(self, inner: SpanExporter, counts: _Counts) -> None:
        self._inner = inner
        self._counts = counts

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self._counts.left_queue(len(spans))
        try:
            result = self._inner.export(spans)
        except Exception:  # telemetry never breaks work
            result = SpanExportResult.FAILURE
        if result is not SpanExportResult.SUCCESS:
            self._counts.failed(len(spans))
        return result

    def shutdown(self) -> None:
        self._inner.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return self._inner.force_flush(timeout_millis)


def provider_of(
    exporter: SpanExporter, resource: Resource, queue_spans_max: int = QUEUE_SPANS_MAX
) -> tuple[TracerProvider, _Counts]:
    """A provider that exports in the background, and the counts of what it could not."""
    provider = TracerProvider(resource=resource, span_limits=SpanLimits(max_links=LINKS_MAX))
    return provider, _add(provider, exporter, queue_spans_max)


def _add(provider: TracerProvider, exporter: SpanExporter, queue_spans_max: int = QUEUE_SPANS_MAX) -> _Counts:
    """Each exporter has a queue of its own, so that one collector's trouble is not another's."""
    counts = _Counts(queue_spans_max)
    provider.add_span_processor(counts)
    provider.add_span_processor(
        BatchSpanProcessor(
            _Counting(exporter, counts), max_queue_size=queue_spans_max, schedule_delay_millis=EXPORT_EVERY_MS,
            max_export_batch_size=min(EXPORT_SPANS_MAX, queue_spans_max),
        )
    )  # fmt: skip
    return counts


def setup(process: str, folder: RunFolder, config: Config) -> None:
    """Begin exporting to the ledger, and to the configured collector as well. Without traces, spans cost next to nothing."""
    global _provider
    if not config.ledger.traces:
        return
    from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter

    try:
        endpoint = folder.endpoint("ledger")
        headers = (("authorization", f"Bearer {read_key(folder.keys, 'service')}"),)
    except (GyreError, OSError) as error:
        log.warning("no traces from %s: %s", process, error)
        return
    logging.getLogger("opentelemetry.exporter.otlp.proto.grpc.exporter").setLevel(logging.ERROR)
    resource = Resource.create({"service.name": f"gyre.{process}", "gyre.run": config.run.name})
    ledger = OTLPSpanExporter(endpoint=f"http://{endpoint}", insecure=True, headers=headers, timeout=5)
    _provider, counts = provider_of(ledger, resource)
    _counts.append(counts)
    if elsewhere := config.ledger.otlp_endpoint:  # a stranger: it never sees the run's key
        _counts.append(_add(_provider, OTLPSpanExporter(endpoint=f"http://{elsewhere}", insecure=True, timeout=5)))
    trace.set_tracer_provider(_provider)


def shutdown() -> None:
    """Send what is left, for at most a few seconds."""
    if _provider is not None:
        _provider.force_flush(3000)
        _provider.shutdown()


def dropped_spans() -> int:
    """Spans of this process that a collector should have and does not."""
    return sum(counts.dropped for counts in _counts)


def server_interceptors() -> list[Any]:
    """For RpcServer: continue the caller's trace."""
    from opentelemetry.instrumentation.grpc import aio_server_interceptor

    return [aio_server_interceptor()] if _provider is not None else []


def client_interceptors() -> list[Any]:
    """For channels whose calls belong to an execution's trace."""
    from opentelemetry.instrumentation.grpc import aio_client_interceptors

    return list(aio_client_interceptors()) if _provider is not None else []

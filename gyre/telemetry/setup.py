"""Provider and exporter of one process."""

import logging
from collections.abc import Sequence
from typing import Any

from opentelemetry import trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanLimits, TracerProvider
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

_provider: TracerProvider | None = None
_exporter: "_Counting | None" = None


class _Counting(SpanExporter):
    """Counts what the collector did not take."""

    def __init__(self, inner: SpanExporter) -> None:
        self._inner = inner
        self.failed = 0

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        try:
            result = self._inner.export(spans)
        except Exception:  # telemetry never breaks work
            result = SpanExportResult.FAILURE
        if result is not SpanExportResult.SUCCESS:
            self.failed += len(spans)
        return result

    def shutdown(self) -> None:
        self._inner.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return self._inner.force_flush(timeout_millis)


def setup(process: str, folder: RunFolder, config: Config) -> None:
    """Begin exporting to the ledger (or the configured collector). Without traces, spans cost next to nothing."""
    global _provider, _exporter
    if not config.ledger.traces:
        return
    from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter

    try:
        endpoint = config.ledger.otlp_endpoint or folder.endpoint("ledger")
        headers = (("authorization", f"Bearer {read_key(folder.keys, 'service')}"),)
    except (GyreError, OSError) as error:
        log.warning("no traces from %s: %s", process, error)
        return
    logging.getLogger("opentelemetry.exporter.otlp.proto.grpc.exporter").setLevel(logging.ERROR)
    resource = Resource.create({"service.name": f"gyre.{process}", "gyre.run": config.run.name})
    limits = SpanLimits(max_links=LINKS_MAX)
    _exporter = _Counting(OTLPSpanExporter(endpoint=f"http://{endpoint}", insecure=True, headers=headers, timeout=5))
    _provider = TracerProvider(resource=resource, span_limits=limits)
    _provider.add_span_processor(
        BatchSpanProcessor(
            _exporter, max_queue_size=QUEUE_SPANS_MAX, schedule_delay_millis=EXPORT_EVERY_MS, max_export_batch_size=2048
        )
    )
    trace.set_tracer_provider(_provider)


def shutdown() -> None:
    """Send what is left, for at most a few seconds."""
    if _provider is not None:
        _provider.force_flush(3000)
        _provider.shutdown()


def dropped_spans() -> int:
    """Spans of this process that no collector has."""
    return _exporter.failed if _exporter else 0


def server_interceptors() -> list[Any]:
    """For RpcServer: continue the caller's trace."""
    from opentelemetry.instrumentation.grpc import aio_server_interceptor

    return [aio_server_interceptor()] if _provider is not None else []


def client_interceptors() -> list[Any]:
    """For channels whose calls belong to an execution's trace."""
    from opentelemetry.instrumentation.grpc import aio_client_interceptors

    return list(aio_client_interceptors()) if _provider is not None else []

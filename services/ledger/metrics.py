"""The measurements of core/measures.py as OpenTelemetry metrics: at a Prometheus endpoint, and to the collector that traces go to.

A measurement comes from a fact once: the books hand over what they had not known before. Nothing here can hold up or break the books.
"""

import asyncio
import logging
from typing import Any

import prometheus_client
from aiohttp import web
from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricReader, PeriodicExportingMetricReader
from opentelemetry.sdk.metrics.view import ExplicitBucketHistogramAggregation, View
from opentelemetry.sdk.resources import Resource

from gyre.records import Fact
from services.ledger.core.bounded import BoundedLabels
from services.ledger.core.measures import INSTRUMENTS, REWARDS, SECONDS, measured
from services.ledger.listening import Listener

log = logging.getLogger(__name__)

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
PUSHED_EVERY_MS = 15_000
"""To a collector; a Prometheus asks when it likes."""


class Metrics:
    """Takes facts, of one thread, and gives what has been measured to any."""

    def __init__(self, run: str, otlp_endpoint: str = "") -> None:
        """`otlp_endpoint`: a collector's gRPC address, host:port, that is sent all metrics too."""
        self._registry = prometheus_client.CollectorRegistry()
        readers: list[MetricReader] = [PrometheusMetricReader(registry=self._registry, scope_info_enabled=False)]
        if otlp_endpoint:
            logging.getLogger("opentelemetry.exporter.otlp.proto.grpc.exporter").setLevel(logging.ERROR)
            exporter = OTLPMetricExporter(endpoint=f"http://{otlp_endpoint}", insecure=True, timeout=5)
            readers.append(PeriodicExportingMetricReader(exporter, PUSHED_EVERY_MS))
        resource = Resource.create({"service.name": "gyre.ledger", "gyre.run": run})
        self._provider = MeterProvider(readers, resource, shutdown_on_exit=False, views=_views())
        meter = self._provider.get_meter("gyre")
        self._labels = BoundedLabels()
        self._write = {name: _writer(meter, name) for name in INSTRUMENTS}

    def see(self, fact: Fact) -> None:
        """Measure one fact that was not seen before."""
        try:
            for name, value, labels in measured(fact):
                self._write[name](value, self._labels.shown(labels))
        except Exception:  # telemetry never breaks work
            log.exception("%s could not be measured", type(fact).__name__)

    def text(self) -> bytes:
        """All of it in Prometheus's text format."""
        return prometheus_client.generate_latest(self._registry)

    def close(self) -> None:
        self._provider.shutdown(5000)


def _views() -> list[View]:
    return [
        View(instrument_name=name, aggregation=ExplicitBucketHistogramAggregation(SECONDS if one.unit == "s" else REWARDS))
        for name, one in INSTRUMENTS.items() if one.kind == "histogram"
    ]  # fmt: skip


_WRITE = {"counter": "add", "gauge": "set", "histogram": "record"}


def _writer(meter: Any, name: str) -> Any:
    """The method that takes a value and its labels."""
    one = INSTRUMENTS[name]
    made = getattr(meter, f"create_{one.kind}")(name, unit=one.unit, description=one.about)
    return getattr(made, _WRITE[one.kind])


class MetricsServer(Listener):
    """`GET /metrics`: numbers without any content, open to whoever reaches the address, as scrapers expect."""

    what = "metrics (`ledger.metrics`)"

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._one_at_a_time = asyncio.Lock()
        app = web.Application()
        app.router.add_get("/metrics", self._answer)
        super().__init__(app)

    async def _answer(self, _request: web.Request) -> web.Response:
        async with self._one_at_a_time:  # beside the loop, in which facts come in: a large page takes a while
            text = await asyncio.to_thread(self._metrics.text)
        return web.Response(body=text, headers={"Content-Type": CONTENT_TYPE})

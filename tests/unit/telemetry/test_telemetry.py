"""Telemetry never blocks or breaks work, and says what it dropped."""

import threading

import pytest
from opentelemetry import trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from gyre import telemetry
from gyre.telemetry.setup import LINKS_MAX, provider_of

PARENT = "00-" + "ab" * 16 + "-" + "cd" * 8 + "-01"


@pytest.fixture
def tracing(monkeypatch):
    """Use an exporter for this test, without touching the process's own provider."""
    providers = []

    def begin(exporter, **options):
        provider, counts = provider_of(exporter, Resource.create({}), **options)
        providers.append(provider)
        monkeypatch.setattr(trace, "get_tracer", lambda name: provider.get_tracer(name))
        return provider, counts

    yield begin
    for provider in providers:
        provider.shutdown()


class Broken(SpanExporter):
    """A collector that is away."""

    def export(self, spans):
        raise ConnectionError("no collector")


class Stuck(SpanExporter):
    """A collector that does not answer until it is let go."""

    def __init__(self):
        self.go = threading.Event()

    def export(self, spans):
        self.go.wait(300)
        return SpanExportResult.SUCCESS


@pytest.mark.parametrize(
    "header",
    ["", "x", "00-zz-1-01", "00-" + "g" * 32 + "-" + "1" * 16 + "-01", "00-" + "0" * 32 + "-" + "1" * 16 + "-01"],
)
def test_a_bad_traceparent_is_no_context(header):
    """Tracing: a header from outside never breaks work."""
    assert telemetry.span_context(header) is None


def test_a_known_time_becomes_a_child_span_that_can_be_continued(tracing):
    """Tracing: names get their dots, the times are those given, the traceparent that comes back is the span's own."""
    exporter = InMemorySpanExporter()
    provider, counts = tracing(exporter)
    child = telemetry.emit_span(
        "gyre.queue", 10.0, 12.5, PARENT, gyre_execution="e", gen_ai_request_model="m", plain=None
    )
    provider.force_flush()
    (span,) = exporter.get_finished_spans()
    assert (span.start_time, span.end_time) == (10_000_000_000, 12_500_000_000)
    assert dict(span.attributes) == {"gyre.execution": "e", "gen_ai.request_model": "m"}
    assert format(span.parent.span_id, "016x") == "cd" * 8
    assert child == f"00-{'ab' * 16}-{span.context.span_id:016x}-01"
    assert counts.dropped == 0


def test_a_step_links_to_every_sample(tracing):
    """Tracing: 300 samples, more than the SDK's own limit of 128; none is lost."""
    exporter = InMemorySpanExporter()
    provider, _ = tracing(exporter)
    links = [f"00-{index:032x}-{index:016x}-01" for index in range(1, 301)]
    telemetry.emit_span("gyre.step", 0.0, 1.0, links=links)
    provider.force_flush()
    (span,) = exporter.get_finished_spans()
    assert (len(span.links), span.dropped_links) == (300, 0)
    assert len(links) < LINKS_MAX


def test_a_collector_that_is_away_costs_nothing_but_its_count(tracing):
    """Tracing: three spans, none delivered, no error reaches the work."""
    provider, counts = tracing(Broken())
    for _ in range(3):
        with telemetry.span("work"):
            pass
    provider.force_flush()
    assert counts.dropped == 3


def test_a_collector_that_is_stuck_never_holds_up_work(tracing):
    """Tracing: the queue holds 8 and one batch of 8 is at the collector, so of 100 spans at least 84 are dropped and counted."""
    exporter = Stuck()
    provider, counts = tracing(exporter, queue_spans_max=8)
    for _ in range(100):
        telemetry.emit_span("work", 0.0, 1.0)  # one that waited would wait for ever
    assert counts.dropped >= 84
    exporter.go.set()
    provider.force_flush()


def test_without_tracing_spans_are_free_and_nameless():
    """Tracing: `ledger.traces = false`."""
    with telemetry.span("work"):
        assert telemetry.current_traceparent() == ""
    assert telemetry.dropped_spans() == 0

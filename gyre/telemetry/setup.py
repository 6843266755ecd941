"""Where this process's spans go."""

import logging
import os

from opentelemetry import trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider

from gyre.config import Config
from gyre.errors import GyreError
from gyre.rpc.auth import read_key
from gyre.run_folder import RunFolder
from gyre.telemetry.outbox import Collector, Outbox
from gyre.telemetry.spans import outboxes, reseed
from gyre.telemetry.wire import Event, Ids, span_bytes

log = logging.getLogger(__name__)

FLUSH_S = 3.0
"""What may be sent before a process ends."""
CUT_OFF_S = 1.0
"""A request under way is over as soon as its channel is closed."""

_collectors: list[Collector] = []
_of_parent: list[tuple[list[Outbox], list[Collector]]] = []
"""In a forked process: kept, for to let go of a channel is to close it."""


class Strangers(SpanProcessor):
    """Spans that others in this process make by OpenTelemetry's API: instrumented libraries of an environment, for instance."""

    def on_end(self, span: ReadableSpan) -> None:
        if not outboxes or not span.context.trace_flags.sampled:
            return
        scope = span.instrumentation_scope
        said = span_bytes(
            span.name, _ids(span.context), _ids(span.parent).span if span.parent else b"", span.start_time or 0, span.end_time or 0,
            {**(span.attributes or {}), **({"otel.scope.name": scope.name} if scope else {})},
            [_ids(link.context) for link in span.links],
            [Event(event.name, event.timestamp, event.attributes or {}) for event in span.events],
            span.status.status_code.value, span.status.description or "", span.kind.value + 1,
        )  # fmt: skip
        for outbox in outboxes:
            outbox.put(said)


def _ids(context: trace.SpanContext) -> Ids:
    return Ids(context.trace_id.to_bytes(16), context.span_id.to_bytes(8), context.trace_flags)


def setup(process: str, folder: RunFolder, config: Config) -> None:
    """Begin exporting to the ledger, and to the configured collector as well. Without traces, spans cost next to nothing."""
    if not config.ledger.traces:
        return
    try:
        endpoint = folder.endpoint("ledger")
        headers = (("authorization", f"Bearer {read_key(folder.keys, 'service')}"),)
    except (GyreError, OSError) as error:
        log.warning("no traces from %s: %s", process, error)
        return
    resource = Resource.create({"service.name": f"gyre.{process}", "gyre.run": config.run.name})
    send_to(endpoint, resource, headers)
    if elsewhere := config.ledger.otlp_endpoint:  # a stranger: it never sees the run's key
        send_to(elsewhere, resource)
    provider = TracerProvider(resource=resource)
    provider.add_span_processor(Strangers())
    trace.set_tracer_provider(provider)


def send_to(endpoint: str, resource: Resource, headers: tuple[tuple[str, str], ...] = ()) -> Outbox:
    """Each collector has a queue of its own, so that one's trouble is not another's."""
    collector = Collector(endpoint, resource.attributes, headers)
    _collectors.append(collector)
    outboxes.append(Outbox(collector.send))
    return outboxes[-1]


def shutdown() -> None:
    """Send what is left, for at most a few seconds."""
    for outbox in outboxes:
        outbox.flush(FLUSH_S)
        outbox.close()
    for collector in _collectors:
        collector.close()
    for outbox in outboxes:
        outbox.join(CUT_OFF_S)
    if dropped := dropped_spans():
        log.warning("%d spans were dropped: no collector took them", dropped)
    outboxes.clear()
    _collectors.clear()


def dropped_spans() -> int:
    """Spans of this process that a collector should have and does not."""
    return sum(outbox.dropped for outbox in outboxes)


def _forked() -> None:
    """The threads that send, and the channels, are the parent's: a forked process makes no spans until it calls `setup` itself; below those of its
    parent, whose traceparents it passes on."""
    _of_parent.append((outboxes[:], _collectors[:]))
    outboxes.clear()
    _collectors.clear()
    reseed()


os.register_at_fork(after_in_child=_forked)

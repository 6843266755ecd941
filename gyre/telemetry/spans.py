"""Spans by W3C traceparent, so that a context can lie in a record, outlive its process and be taken up by another."""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from opentelemetry import trace
from opentelemetry.trace import Link, NonRecordingSpan, Span, SpanContext, Status, StatusCode, TraceFlags

_SPAN_VERSION = "00"
_made: tuple[Any, Any, trace.Tracer] | None = None


def _tracer() -> trace.Tracer:
    """Gyre's tracer of the provider in force. Making one costs as much as a span, so it is kept."""
    global _made
    asked, provider = trace.get_tracer, trace.get_tracer_provider()
    if _made is None or _made[0] is not asked or _made[1] is not provider:
        _made = asked, provider, asked("gyre")
    return _made[2]


def span_context(traceparent: str) -> SpanContext | None:
    """`00-<trace>-<span>-<flags>` → context; None for anything else (a bad header never breaks work)."""
    parts = traceparent.split("-")
    if len(parts) != 4 or len(parts[1]) != 32 or len(parts[2]) != 16:
        return None
    try:
        context = SpanContext(
            int(parts[1], 16), int(parts[2], 16), is_remote=True, trace_flags=TraceFlags(int(parts[3], 16))
        )
    except ValueError:
        return None
    return context if context.is_valid else None


def _parent(traceparent: str):
    context = span_context(traceparent)
    return trace.set_span_in_context(NonRecordingSpan(context)) if context else None


def traceparent_of(span: Span) -> str:
    """The traceparent under which another process may add children to `span`; empty when nothing is recorded."""
    context = span.get_span_context()
    if not context.is_valid:
        return ""
    return f"{_SPAN_VERSION}-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"


def current_traceparent() -> str:
    return traceparent_of(trace.get_current_span())


@contextlib.contextmanager
def span(name: str, traceparent: str = "", links: Sequence[str] = (), **attributes: Any) -> Iterator[Span]:
    """Time a block as a child of `traceparent` (of the current span when it is empty). Errors are recorded on it and go on."""
    with _tracer().start_as_current_span(
        name, context=_parent(traceparent), links=_links(links), attributes=_plain(attributes)
    ) as new:
        yield new


def emit_span(
    name: str,
    start_s: float,
    end_s: float,
    traceparent: str = "",
    links: Sequence[str] = (),
    error: str = "",
    **attributes: Any,
) -> str:
    """Record a span whose times are known already (a wait, a phase); returns its traceparent."""
    tracer = _tracer()
    if isinstance(tracer, trace.ProxyTracer):  # nobody takes spans; what follows would make one all the same
        return traceparent if span_context(traceparent) else ""
    new = tracer.start_span(
        name,
        context=_parent(traceparent),
        links=_links(links),
        attributes=_plain(attributes),
        start_time=int(start_s * 1e9),
    )
    if error:
        new.set_status(Status(StatusCode.ERROR, error))
    new.end(int(max(start_s, end_s) * 1e9))
    return traceparent_of(new)


def _links(traceparents: Sequence[str]) -> list[Link]:
    return [Link(context) for context in map(span_context, traceparents) if context is not None]


def _plain(attributes: dict[str, Any]) -> dict[str, Any]:
    """Keyword names become attribute names: `gyre_execution` → `gyre.execution`, `gen_ai_x` → `gen_ai.x`."""
    return {_attribute(name): value for name, value in attributes.items() if value is not None}


def _attribute(name: str) -> str:
    for prefix in ("gen_ai", "gyre", "messaging", "rpc"):
        if name.startswith(prefix + "_"):
            return f"{prefix}.{name[len(prefix) + 1 :]}"
    return name

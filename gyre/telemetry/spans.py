"""Spans by W3C traceparent, so that a context can lie in a record, outlive its process and be taken up by another.

Gyre's own spans are made here and not by OpenTelemetry's SDK, which takes ten times as long for each; they are spans of its API (what runs inside one
sees it as the current span) and leave as OTLP like any other.
"""

import contextlib
import logging
import random
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from opentelemetry import trace
from opentelemetry.trace import INVALID_SPAN, NonRecordingSpan, SpanContext, Status, StatusCode, TraceFlags

from gyre.telemetry.outbox import Outbox
from gyre.telemetry.wire import INT64_MAX, SAMPLED, Event, Ids, span_bytes

log = logging.getLogger(__name__)

outboxes: list[Outbox] = []
"""Where each span goes; without any, spans cost next to nothing."""
_random = random.Random()
"""Of our own: environments seed the process's, and two executions of one seed would get the same ids."""
_CONTEXTS_KEPT = 1024
"""An execution's traceparent is read with each of its calls."""


@lru_cache(_CONTEXTS_KEPT)
def _ids(traceparent: str) -> Ids | None:
    parts = traceparent.split("-")
    if len(parts) != 4 or len(parts[1]) != 32 or len(parts[2]) != 16:
        return None
    try:
        ids = Ids(bytes.fromhex(parts[1]), bytes.fromhex(parts[2]), int(parts[3], 16) & 0xFF)
    except ValueError:
        return None
    return ids if len(ids.trace) == 16 and len(ids.span) == 8 and any(ids.trace) and any(ids.span) else None


def span_context(traceparent: str) -> SpanContext | None:
    """`00-<trace>-<span>-<flags>` → context; None for anything else (a bad header never breaks work)."""
    ids = _ids(traceparent)
    return _context(ids, is_remote=True) if ids else None


def _context(ids: Ids, is_remote: bool = False) -> SpanContext:
    return SpanContext(int.from_bytes(ids.trace), int.from_bytes(ids.span), is_remote, TraceFlags(ids.flags))


def traceparent_of(span: trace.Span) -> str:
    """The traceparent under which another process may add children to `span`; empty when nothing is recorded."""
    context = span.get_span_context()
    if not context.is_valid:
        return ""
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"


def current_traceparent() -> str:
    return traceparent_of(trace.get_current_span())


class OpenSpan(trace.Span):
    """A span that has begun. It goes its way when it ends; what is said of it later is not told."""

    def __init__(self, name: str, parent: Ids | None, links: Sequence[str], attributes: dict[str, Any]) -> None:
        self._name, self._links, self._attributes = name, links, attributes
        self._ids = _new_ids(parent)
        self._parent_id = parent.span if parent else b""
        self._start_ns = time.time_ns()
        self._events: list[Event] = []
        self._status, self._message = 0, ""
        self._has_ended = False

    def get_span_context(self) -> SpanContext:
        return _context(self._ids)

    def is_recording(self) -> bool:
        return not self._has_ended

    def set_attribute(self, key: str, value: Any) -> None:
        self._attributes[key] = value

    def set_attributes(self, attributes: Mapping[str, Any]) -> None:
        self._attributes.update(attributes)

    def update_name(self, name: str) -> None:
        self._name = name

    def add_event(self, name: str, attributes: Mapping[str, Any] | None = None, timestamp: int | None = None) -> None:
        self._events.append(Event(name, timestamp or time.time_ns(), attributes or {}))

    def set_status(self, status: Status | StatusCode, description: str | None = None) -> None:
        told = status if isinstance(status, Status) else Status(status, description)
        self._status, self._message = told.status_code.value, told.description or ""

    def record_exception(
        self, exception: BaseException, attributes: Mapping[str, Any] | None = None, timestamp: int | None = None, escaped: bool = False
    ) -> None:  # fmt: skip
        said = {
            "exception.type": type(exception).__name__, "exception.message": str(exception),
            "exception.stacktrace": "".join(traceback.format_exception(exception)), **(attributes or {}),
        }  # fmt: skip
        self.add_event("exception", said, timestamp)

    def end(self, end_time: int | None = None) -> None:
        if self._has_ended:
            return
        self._has_ended = True
        _tell(
            self._name, self._ids, self._parent_id, self._start_ns, end_time or time.time_ns(), self._attributes, _known(self._links),
            self._events, self._status, self._message,
        )  # fmt: skip


def begin_span(name: str, traceparent: str = "", links: Sequence[str] = (), **attributes: Any) -> trace.Span:
    """A child of `traceparent` (of the current span when it is empty) that is current nowhere; whoever begins it ends it."""
    parent = _parent(traceparent)
    if not outboxes or (parent and not parent.flags & SAMPLED):
        return NonRecordingSpan(_context(parent, is_remote=True)) if parent else INVALID_SPAN
    return OpenSpan(name, parent, links, _plain(attributes))


@contextlib.contextmanager
def span(name: str, traceparent: str = "", links: Sequence[str] = (), **attributes: Any) -> Iterator[trace.Span]:
    """Time a block as a child of `traceparent` (of the current span when it is empty). Errors are recorded on it and go on."""
    with trace.use_span(begin_span(name, traceparent, links, **attributes), end_on_exit=True) as new:
        yield new


def emit_span(
    name: str, start_s: float, end_s: float, traceparent: str = "", links: Sequence[str] = (), error: str = "", **attributes: Any
) -> str:  # fmt: skip
    """Record a span whose times are known already (a wait, a phase); returns its traceparent."""
    parent = _parent(traceparent)
    if not outboxes or (parent and not parent.flags & SAMPLED):
        return parent.traceparent if parent else ""
    ids, start_ns = _new_ids(parent), _ns(start_s)
    _tell(
        name, ids, parent.span if parent else b"", start_ns, max(start_ns, _ns(end_s)), _plain(attributes),
        _known(links) if links else (), status=StatusCode.ERROR.value if error else 0, message=error,
    )  # fmt: skip
    return ids.traceparent


def _ns(seconds: float) -> int:
    """Unix time; 0 for what is none."""
    return int(seconds * 1e9) if 0 < seconds < INT64_MAX / 1e9 else 0


def _parent(traceparent: str) -> Ids | None:
    if ids := _ids(traceparent):
        return ids
    current = trace.get_current_span().get_span_context()
    return (
        Ids(current.trace_id.to_bytes(16), current.span_id.to_bytes(8), current.trace_flags)
        if current.is_valid
        else None
    )


def reseed() -> None:
    """In a process that has its parent's state: else it would give the same ids."""
    _random.seed()


def _new_ids(parent: Ids | None) -> Ids:
    # all zero is no id; of 64 random bits it does not happen, and would be one span that is refused
    return Ids(parent.trace if parent else _random.randbytes(16), _random.randbytes(8))


def _known(traceparents: Sequence[str]) -> list[Ids]:
    return [ids for ids in map(_ids, traceparents) if ids]


def _tell(*said: Any, **more: Any) -> None:
    try:
        span = span_bytes(*said, **more)
    except Exception:  # telemetry never breaks work
        log.warning("a span cannot be said: %r", said, exc_info=True)
        return
    for outbox in outboxes:
        outbox.put(span)


def _plain(attributes: dict[str, Any]) -> dict[str, Any]:
    """Keyword names become attribute names: `gyre_execution` → `gyre.execution`, `gen_ai_x` → `gen_ai.x`."""
    return {_attribute(name): value for name, value in attributes.items() if value is not None}


@lru_cache(_CONTEXTS_KEPT)
def _attribute(name: str) -> str:
    for prefix in ("gen_ai", "gyre", "messaging", "rpc"):
        if name.startswith(prefix + "_"):
            return f"{prefix}.{name[len(prefix) + 1 :]}"
    return name

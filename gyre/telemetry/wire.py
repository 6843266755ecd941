"""Spans as OTLP says them, each made into bytes where it ends: what waits is small, and putting a request together copies bytes."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import ScopeSpans
from opentelemetry.proto.trace.v1.trace_pb2 import Span as OtlpSpan

LINKS_MAX = 4096
"""A step links to each of its samples; of more, the number is told."""
TEXT_CHARS_MAX = 32 * 1024
"""Of any text, an exception's for instance; of more, the begin and the end are told, and how much is left out."""
SAMPLED = 1
INTERNAL = OtlpSpan.SPAN_KIND_INTERNAL
INT64_MAX = 2**63 - 1


class Ids(NamedTuple):
    """Of one span: 16 and 8 bytes, not all zero."""

    trace: bytes
    span: bytes
    flags: int = SAMPLED

    @property
    def traceparent(self) -> str:
        return f"00-{self.trace.hex()}-{self.span.hex()}-{self.flags:02x}"


class Event(NamedTuple):
    """A moment in a span."""

    name: str
    at_ns: int
    attributes: Mapping[str, Any]


def span_bytes(
    name: str, ids: Ids, parent_id: bytes, start_ns: int, end_ns: int, attributes: Mapping[str, Any], links: Sequence[Ids] = (),
    events: Iterable[Event] = (), status: int = 0, message: str = "", kind: int = INTERNAL,
) -> bytes:  # fmt: skip
    """A serialised ScopeSpans with one span; `parent_id` is empty for a root. Any attribute can be said, if need be as text; texts are bounded."""
    scope = ScopeSpans()
    span = scope.spans.add(
        trace_id=ids.trace, span_id=ids.span, parent_span_id=parent_id, name=_sayable(name), kind=kind, flags=SAMPLED,
        start_time_unix_nano=start_ns, end_time_unix_nano=end_ns,
    )  # fmt: skip
    _say(span.attributes, attributes)
    for link in links[:LINKS_MAX]:
        span.links.add(trace_id=link.trace, span_id=link.span)
    if len(links) > LINKS_MAX:
        span.dropped_links_count = len(links) - LINKS_MAX
    for event in events:
        _say(span.events.add(name=_sayable(event.name), time_unix_nano=event.at_ns).attributes, event.attributes)
    if status:
        span.status.code, span.status.message = status, _sayable(message)
    return scope.SerializeToString()


def request_bytes(resource: Mapping[str, Any], spans: Sequence[bytes]) -> bytes:
    """A serialised ExportTraceServiceRequest of what `span_bytes` made: serialised messages one after the other are one message."""
    request = ExportTraceServiceRequest()
    group = request.resource_spans.add()
    _say(group.resource.attributes, resource)
    scope = group.scope_spans.add()
    scope.scope.name = "gyre"
    scope.MergeFromString(b"".join(spans))
    return request.SerializeToString()


def _say(into: Any, attributes: Mapping[str, Any]) -> None:
    add = into.add
    for key, value in attributes.items():
        _set(add(key=_sayable(key)).value, value)


def _set(said: Any, value: Any) -> None:
    if isinstance(value, str):
        said.string_value = _sayable(value)
    elif isinstance(value, bool):
        said.bool_value = value
    elif isinstance(value, int) and -INT64_MAX <= value <= INT64_MAX:
        said.int_value = value
    elif isinstance(value, float):
        said.double_value = value
    elif isinstance(value, list | tuple):
        said.array_value.SetInParent()  # an empty one is one, too
        values = said.array_value.values
        for item in value:
            _set(values.add(), item)
    else:
        said.string_value = _sayable(str(value))


def _sayable(text: str) -> str:
    """Bounded; half a surrogate pair, which a model can well say, is no UTF-8."""
    if (more := len(text) - TEXT_CHARS_MAX) > 0:
        half = TEXT_CHARS_MAX // 2
        text = f"{text[:half]} … {more} of {len(text)} characters are left out … {text[-half:]}"
    return text if text.isascii() else text.encode("utf-8", "replace").decode()

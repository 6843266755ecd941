"""The spans that the code under test makes, as a collector would read them."""

import contextlib
from collections.abc import Iterator
from typing import Any

from opentelemetry.proto.trace.v1.trace_pb2 import ScopeSpans, Span

from gyre.telemetry.spans import outboxes


class Kept:
    """In place of an outbox."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.dropped = 0

    def put(self, said: bytes) -> None:
        self.spans += ScopeSpans.FromString(said).spans

    def named(self, name: str) -> list[Span]:
        return [span for span in self.spans if span.name == name]


@contextlib.contextmanager
def kept_spans() -> Iterator[Kept]:
    kept: Any = Kept()
    outboxes.append(kept)
    try:
        yield kept
    finally:
        outboxes.remove(kept)


def attributes_of(span: Any) -> dict[str, Any]:
    """Of a span or an event; lists as lists."""
    return {pair.key: _value(pair.value) for pair in span.attributes}


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    return [_value(item) for item in value.array_value.values] if kind == "array_value" else getattr(value, kind)

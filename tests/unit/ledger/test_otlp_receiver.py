"""An exporter's request in parts: what is stored, what is refused, of however many spans."""

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from services.ledger.otlp import SPANS_AT_ONCE, TraceReceiver
from services.ledger.storage import Stored


class Keeping:
    """A writer that can hold no span of number 7, nor of 1007, and no more of one call than SPANS_AT_ONCE."""

    def __init__(self) -> None:
        self.names: list[str] = []

    async def write_spans(self, rows) -> Stored:
        assert len(rows) <= SPANS_AT_ONCE
        refused = [(index, "no") for index, row in enumerate(rows) if row["name"] in ("7", "1007")]
        self.names += [row["name"] for row in rows]
        return Stored(new=len(rows) - len(refused), refused=refused)


async def test_a_large_export_is_stored_in_parts_and_answered_as_one():
    """Two spans that cannot be held and two without valid ids are rejected, of 2,500; the others are not."""
    request = ExportTraceServiceRequest()
    group = request.resource_spans.add()
    group.resource.attributes.add(key="gyre.run").value.string_value = "a\x00b"
    scope = group.scope_spans.add()
    for number in range(2_500):
        span = scope.spans.add(name=str(number), trace_id=(number + 1).to_bytes(16), span_id=(number + 1).to_bytes(8))
        if number in (3, 2_400):
            span.span_id = b"short"
    writer = Keeping()
    answer = await TraceReceiver(writer).Export(request, None)
    assert answer.partial_success.rejected_spans == 4
    assert writer.names == [str(number) for number in range(2_500) if number not in (3, 2_400)]

"""Telemetry never blocks or breaks work, says what it dropped, and its spans are spans of OpenTelemetry."""

import enum
import random
import threading

import pytest
from opentelemetry import trace
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import TracerProvider

from gyre import telemetry
from gyre.telemetry.outbox import EXPORT_BYTES_MAX, EXPORT_SPANS_MAX, Outbox
from gyre.telemetry.setup import Strangers
from gyre.telemetry.spans import outboxes
from gyre.telemetry.wire import LINKS_MAX, TEXT_CHARS_MAX, request_bytes
from tests.kept_spans import attributes_of, kept_spans

TRACE, SPAN = "ab" * 16, "cd" * 8
PARENT = f"00-{TRACE}-{SPAN}-01"


@pytest.fixture
def kept():
    with kept_spans() as kept:
        yield kept


@pytest.fixture
def sending():
    """An outbox for this test: `sending(send)`."""
    made = []

    def begin(send, **options):
        made.append(Outbox(send, **options))
        outboxes.append(made[-1])
        return made[-1]

    yield begin
    for outbox in made:
        outboxes.remove(outbox)
        outbox.close()


@pytest.mark.parametrize(
    "header",
    [
        "", "x", "00-zz-1-01", "00-" + "g" * 32 + "-" + "1" * 16 + "-01", "00-" + "0" * 32 + "-" + "1" * 16 + "-01",
        "00-" + "1 " * 16 + "-" + "1" * 16 + "-01", "00-" + "1" * 32 + "-" + "1" * 16 + "-x", "00-" + "1" * 32 + "-" + "0" * 16 + "-01",
    ],
)  # fmt: skip
def test_a_bad_traceparent_is_no_context(header):
    """Tracing: a header from outside never breaks work."""
    assert telemetry.span_context(header) is None


def test_a_known_time_becomes_a_child_span_that_can_be_continued(kept):
    """Tracing: names get their dots, the times are those given, the traceparent that comes back is the span's own."""
    child = telemetry.emit_span(
        "gyre.queue", 10.0, 12.5, PARENT, error="late", gyre_execution="e", gen_ai_request_model="m", plain=None
    )
    (span,) = kept.spans
    assert (span.start_time_unix_nano, span.end_time_unix_nano) == (10_000_000_000, 12_500_000_000)
    assert attributes_of(span) == {"gyre.execution": "e", "gen_ai.request_model": "m"}
    assert (span.trace_id.hex(), span.parent_span_id.hex(), span.flags) == (TRACE, SPAN, 1)
    assert (span.status.code, span.status.message) == (2, "late")
    assert child == f"00-{TRACE}-{span.span_id.hex()}-01"
    context = telemetry.span_context(child)
    assert (f"{context.trace_id:032x}", f"{context.span_id:016x}") == (TRACE, span.span_id.hex())


def test_spans_nest_by_the_current_span_of_opentelemetry(kept):
    """Tracing: a block below a block; a library that looks for the current span finds ours; an opened one is current nowhere."""
    with telemetry.span("outer", PARENT, gyre_n=1) as outer:
        assert trace.get_current_span() is outer and outer.is_recording()
        telemetry.begin_span("beside").end()
        with telemetry.span("inner") as inner:
            inner.set_attribute("gyre.x", [1, 2])
            inner.add_event("its turn", {"n": 1})
    outer.set_attribute("late", True)
    outer.end()
    beside, inner, outer = kept.spans
    assert {one.trace_id.hex() for one in kept.spans} == {TRACE} and outer.parent_span_id.hex() == SPAN
    assert beside.parent_span_id == inner.parent_span_id == outer.span_id
    assert attributes_of(inner) == {"gyre.x": [1, 2]} and attributes_of(outer) == {"gyre.n": 1}
    assert [(event.name, attributes_of(event)) for event in inner.events] == [("its turn", {"n": 1})]
    assert (
        outer.start_time_unix_nano <= inner.start_time_unix_nano <= inner.end_time_unix_nano <= outer.end_time_unix_nano
    )


def test_an_error_is_recorded_and_goes_on(kept):
    """Tracing: status and exception as OpenTelemetry's conventions have them."""
    with pytest.raises(KeyError), telemetry.span("work"):
        raise KeyError("no")
    (span,) = kept.spans
    assert (span.status.code, span.status.message) == (2, "KeyError: 'no'")
    assert attributes_of(span.events[0]).items() >= {"exception.type": "KeyError", "exception.message": "'no'"}.items()


def test_a_text_of_megabytes_is_told_in_part_and_its_length_is(kept):
    """Tracing: wherever a span has texts; a span stays small, and the end of an exception's says most."""
    long = "a" * 2_000_000 + "é" * 1_000_000
    with pytest.raises(ValueError), telemetry.span(long, text=long, texts=[long], **{long: 1}) as open_span:
        open_span.add_event(long, {"text": long})
        raise ValueError(long)
    (span,) = kept.spans
    assert span.ByteSize() < EXPORT_BYTES_MAX
    said, thrown = attributes_of(span), attributes_of(span.events[1])
    (key,) = said.keys() - {"text", "texts"}
    texts = [said["text"], *said["texts"], key, span.name, span.events[0].name, thrown["exception.message"]]
    for text in texts:
        assert text.startswith("aaa") and text.endswith("ééé") and "of 3000000 characters" in text
        assert len(text) < TEXT_CHARS_MAX + 100
    assert (
        "characters are left out" in span.status.message and "characters are left out" in thrown["exception.stacktrace"]
    )


class Phase(enum.IntEnum):
    TWO = 2


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (True, True), (Phase.TWO, 2), (2**63, str(2**63)), (-(2**63), str(-(2**63))), (1.5, 1.5), ("half \ud83d", "half ?"),
        (("a", 1), ["a", 1]), ([], []), ({"a": 1}, "{'a': 1}"), (float("inf"), float("inf")),
    ],
)  # fmt: skip
def test_whatever_an_attribute_holds_is_said(kept, value, said):
    """Tracing: a model's half surrogate pair, numbers beyond 64 bits and odd types neither break work nor lose their span."""
    telemetry.emit_span("a \ud83d", 0.0, 1.0, error="b \ud83d", value=value)
    (span,) = kept.spans
    assert attributes_of(span) == {"value": said} and (span.name, span.status.message) == ("a ?", "b ?")


def test_a_time_that_is_none_breaks_no_work(kept):
    """Tracing: not a number, before 1970, beyond 64 bits."""
    for start_s, end_s in ((float("nan"), 1.0), (-5.0, 1.0), (0.0, 1.0), (2.0, 1.0), (1.0, float("inf"))):
        telemetry.emit_span("work", start_s, end_s)
    said = [(span.start_time_unix_nano / 1e9, span.end_time_unix_nano / 1e9) for span in kept.spans]
    assert said == [(0, 1), (0, 1), (0, 1), (2, 2), (1, 1)]


def test_a_step_links_to_every_sample_and_says_how_many_it_left_out(kept):
    """Tracing: 300 samples, more than the SDK's own limit of 128, none is lost; beyond our own limit the number is told."""
    links = [f"00-{index:032x}-{index:016x}-01" for index in range(1, LINKS_MAX + 3)]
    telemetry.emit_span("gyre.step", 0.0, 1.0, links=links[:300])
    telemetry.emit_span("gyre.step", 0.0, 1.0, links=[*links, "no link"])
    assert [(len(span.links), span.dropped_links_count) for span in kept.spans] == [(300, 0), (LINKS_MAX, 2)]


def test_ids_are_other_ones_though_an_environment_seeds_the_process(kept):
    """Tracing: two executions of one seed."""
    for _ in range(2):
        random.seed(7)
        telemetry.emit_span("work", 0.0, 1.0)
    assert len({span.trace_id for span in kept.spans}) == len({span.span_id for span in kept.spans}) == 2


def test_an_unsampled_trace_stays_unsampled(kept):
    """Tracing: W3C's flag, set by whoever began the trace."""
    unsampled = PARENT[:-2] + "00"
    assert telemetry.emit_span("work", 0.0, 1.0, unsampled) == unsampled
    with telemetry.span("work", unsampled) as span:
        assert not span.is_recording() and telemetry.current_traceparent() == unsampled
    assert kept.spans == []


def test_spans_that_others_make_by_opentelemetrys_api_leave_as_well(kept):
    """Tracing: an instrumented library in an environment, below our span, with what it says."""
    provider = TracerProvider()
    provider.add_span_processor(Strangers())
    with telemetry.span("ours", PARENT) as ours:
        with provider.get_tracer("theirs").start_as_current_span("request", kind=trace.SpanKind.CLIENT) as made:
            made.set_attribute("n", 1)
            made.add_event("sent")
    theirs, mine = kept.spans
    assert (theirs.name, theirs.kind, theirs.parent_span_id) == ("request", theirs.SPAN_KIND_CLIENT, mine.span_id)
    assert attributes_of(theirs) == {"n": 1, "otel.scope.name": "theirs"} and theirs.events[0].name == "sent"
    assert ours.get_span_context().trace_id == made.get_span_context().trace_id


def test_a_request_holds_all_its_spans_under_one_resource(sending):
    """Tracing: OTLP as any collector reads it; no request has more than its spans and bytes."""
    batches, go = [], threading.Event()
    outbox = sending(lambda batch: batches.append(batch) or 0 * go.wait(60))
    for number in range(EXPORT_SPANS_MAX + 1):
        telemetry.emit_span(f"s{number}", 0.0, 1.0, PARENT)
    telemetry.emit_span("large", 0.0, 1.0, PARENT, texts=["x" * 1024] * (EXPORT_BYTES_MAX // 1500))
    telemetry.emit_span("large too", 0.0, 1.0, PARENT, texts=["x" * 1024] * (EXPORT_BYTES_MAX // 1500))
    telemetry.emit_span("last", 0.0, 1.0, PARENT)
    go.set()
    assert outbox.flush(60)
    requests = [ExportTraceServiceRequest.FromString(request_bytes({"service.name": "me"}, one)) for one in batches]
    (groups,) = {len(request.resource_spans) for request in requests}
    read = [
        [span.name for scope in request.resource_spans[0].scope_spans for span in scope.spans] for request in requests
    ]
    names = [*(f"s{number}" for number in range(EXPORT_SPANS_MAX + 1)), "large", "large too", "last"]
    assert groups == 1 and [name for part in read for name in part] == names
    assert max(map(len, read)) <= EXPORT_SPANS_MAX and read[-1] == ["last"]
    assert attributes_of(requests[0].resource_spans[0].resource) == {"service.name": "me"}


def test_a_collector_that_is_away_costs_nothing_but_its_count(sending):
    """Tracing: three spans, none delivered, no error reaches the work."""

    def away(batch):
        raise ConnectionError("no collector")

    outbox = sending(away)
    for _ in range(3):
        with telemetry.span("work"):
            pass
    assert outbox.flush(60)
    assert outbox.dropped == telemetry.dropped_spans() == 3


def test_what_a_collector_rejects_is_counted(sending):
    """Tracing: OTLP's partial success."""
    outbox = sending(lambda batch: 1)
    telemetry.emit_span("work", 0.0, 1.0)
    assert outbox.flush(60) and outbox.dropped == 1


def test_a_collector_that_is_stuck_never_holds_up_work(sending):
    """Tracing: the queue holds 8 and one span is at the collector, so of 100 more 92 are dropped and counted."""
    asked, go = threading.Event(), threading.Event()

    def stuck(batch):
        asked.set()
        return 0 * go.wait(300)

    outbox = sending(stuck, spans_max=8)
    telemetry.emit_span("work", 0.0, 1.0)
    assert not outbox.flush(0) and asked.wait(60)
    for _ in range(100):
        telemetry.emit_span("work", 0.0, 1.0)  # one that waited would wait for ever
    assert outbox.dropped == 92
    go.set()
    assert outbox.flush(60)


def test_without_tracing_spans_are_free_and_nameless():
    """Tracing: `ledger.traces = false`."""
    with telemetry.span("work"):
        assert telemetry.current_traceparent() == ""
    with telemetry.span("work", PARENT):
        assert telemetry.current_traceparent() == PARENT
    assert (telemetry.emit_span("work", 0.0, 1.0), telemetry.emit_span("work", 0.0, 1.0, PARENT)) == ("", PARENT)
    assert telemetry.dropped_spans() == 0

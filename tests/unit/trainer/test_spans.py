"""An execution's trace reaches the gradient."""

import msgspec
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from gyre.clock import ManualClock
from gyre.config import TrainerConfig
from services.trainer.compute import Compute
from services.trainer.model import Policy
from tests.integration.trainer.trainer_helpers import make_group


@pytest.fixture
def spans(monkeypatch):
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer", provider.get_tracer)
    return exporter


async def test_each_sample_gets_a_gradient_span_in_its_own_trace(model_directory, spans):
    """E. `train.gradient` is a child of Row.traceparent; the micro-step's own span links to every sample it holds."""
    micro = make_group(0, 0, members=1)[0]
    parents = [f"00-{trace_id:032x}-{7:016x}-01" for trace_id in (11, 12)]
    rows = [
        msgspec.structs.replace(micro.rows[0], sample_id=f"x{index}", traceparent=parent)
        for index, parent in enumerate(parents)
    ]
    compute = Compute("cell-1", Policy(model_directory), TrainerConfig(), ManualClock(5.0))
    await compute.micro_step(msgspec.structs.replace(micro, rows=rows))
    compute.close()
    found = spans.get_finished_spans()
    gradients = [span for span in found if span.name == "train.gradient"]
    assert {(span.context.trace_id, span.parent.span_id) for span in gradients} == {(11, 7), (12, 7)}
    (whole,) = [span for span in found if span.name == "train.micro_step"]
    assert {link.context.trace_id for link in whole.links} == {11, 12}

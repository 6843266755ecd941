"""An execution's trace reaches the gradient."""

import msgspec

from gyre.clock import ManualClock
from gyre.config import TrainerConfig
from services.trainer.compute import Compute
from services.trainer.model import Policy
from tests.integration.trainer.trainer_helpers import make_group
from tests.kept_spans import kept_spans


async def test_each_sample_gets_a_gradient_span_in_its_own_trace(model_directory):
    """E. `train.gradient` is a child of Row.traceparent; the micro-step's own span links to every sample it holds."""
    micro = make_group(0, 0, members=1)[0]
    parents = [f"00-{trace_id:032x}-{7:016x}-01" for trace_id in (11, 12)]
    rows = [
        msgspec.structs.replace(micro.rows[0], sample_id=f"x{index}", traceparent=parent)
        for index, parent in enumerate(parents)
    ]
    compute = Compute("cell-1", Policy(model_directory), TrainerConfig(), ManualClock(5.0))
    with kept_spans() as kept:
        await compute.micro_step(msgspec.structs.replace(micro, rows=rows))
    compute.close()
    gradients = kept.named("train.gradient")
    assert {(int.from_bytes(one.trace_id), int.from_bytes(one.parent_span_id)) for one in gradients} == {
        (11, 7),
        (12, 7),
    }
    (whole,) = kept.named("train.micro_step")
    assert {int.from_bytes(link.trace_id) for link in whole.links} == {11, 12}

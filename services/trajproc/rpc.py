"""TrajprocService: the state of the experience pool and of the open batch."""

from typing import Any

from gyre.api.trajproc.v1 import trajproc_pb2 as pb
from gyre.api.trajproc.v1 import trajproc_pb2_grpc
from services.trajproc.core.fold import Processor
from services.trajproc.keeping import Keeping

SERVICE = "gyre.api.trajproc.v1.TrajprocService"


class TrajprocServicer(trajproc_pb2_grpc.TrajprocServiceServicer):
    """Answers from memory."""

    def __init__(self, processor: Processor, keeping: Keeping) -> None:
        self._processor = processor
        self._keeping = keeping

    async def GetState(self, request: pb.GetStateRequest, context: Any) -> pb.GetStateResponse:
        state = state_of(self._processor)
        state.trees_kept, state.trees_lost = self._keeping.kept, self._keeping.lost
        return state


def state_of(processor: Processor) -> pb.GetStateResponse:
    """`step` is the open batch's, else the optimizer steps done."""
    batch, ready = processor.batch, processor.ready
    step = batch.step if batch else processor.step
    return pb.GetStateResponse(
        step=step,
        batch_open=batch is not None and not batch.closing,
        turns=batch.turns if batch else 0,
        turns_target=processor.config.turns_per_step,
        ready_groups=len(ready),
        unfinished_groups=len(processor.unfinished),
        oldest_ready_age_steps=step - ready[0].policy_version if ready else 0,
        dropped={reason: count for reason, count in processor.dropped.items() if count},
        no_gradient_batches=processor.no_gradient_batches,
        set_aside=dict(processor.set_aside),
        overdue=dict(processor.overdue),
        overdue_now=len(batch.overdue.execution_ids) if batch and batch.overdue else 0,
        elites=len(processor.elites),
        evaluations_waiting=sum(map(len, processor.questions.values())),
        evaluations_failed={name: count for name, count in processor.evaluations_failed.items() if count},
    )

"""The core's end of the satellites' streams: what they say becomes events, what the core decides goes out (A2, A8).

One stream per satellite. Its end, or silence for `claim_s`, is a death.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc.aio

from gyre.api.trainer.v1 import core_pb2 as pb
from gyre.api.trainer.v1 import core_pb2_grpc
from gyre.errors import InvalidInput
from gyre.rpc import RpcServer, abort_with
from gyre.tasks import end
from services.trainer.core import events as e
from services.trainer.core import step as s
from services.trainer.gradient import SampleSeen

log = logging.getLogger(__name__)

VERDICTS = {
    e.Verdict.COMPUTE: pb.Verdict.ANSWER_COMPUTE,
    e.Verdict.PASS: pb.Verdict.ANSWER_PASS,
    e.Verdict.DISCARD: pb.Verdict.ANSWER_DISCARD,
}
ANSWERS = {answer: verdict for verdict, answer in VERDICTS.items()}

Seen = Callable[[str, str, dict[str, SampleSeen], float], None]
"""(cell, micro-step, sample → what was seen, compute seconds)"""


class CoreService(core_pb2_grpc.CoreServiceServicer):
    """`post` takes events in order; `seen` is told of a gradient before its Computed is posted."""

    def __init__(
        self, post: Callable[[e.Event], None], seen: Seen, state: Callable[[], s.StepState], core: str, silence_s: float
    ) -> None:
        self._post = post
        self._seen = seen
        self._state = state
        self._core = core
        self._silence_s = silence_s
        self._outboxes: dict[str, asyncio.Queue[pb.TrainResponse | None]] = {}

    def send(self, cell: str, **body: Any) -> None:
        """Queue a message for a satellite; one that is gone gets nothing."""
        if (outbox := self._outboxes.get(cell)) is not None:
            outbox.put_nowait(pb.TrainResponse(**body))

    def cut(self, cell: str) -> None:
        """End a satellite's stream: it drops its gradient and its claims, and may join anew."""
        if (outbox := self._outboxes.pop(cell, None)) is not None:
            outbox.put_nowait(None)

    async def Train(self, requests: Any, context: grpc.aio.ServicerContext) -> AsyncIterator[pb.TrainResponse]:
        first = await anext(aiter(requests), pb.TrainRequest())
        cell = first.join.cell
        if first.WhichOneof("body") != "join" or not cell or cell == self._core:
            await abort_with(context, InvalidInput("the first message of a satellite is Join with its cell's name"))
        self.cut(cell)
        outbox: asyncio.Queue[pb.TrainResponse | None] = asyncio.Queue()
        self._outboxes[cell] = outbox
        self._post(e.Join(cell))
        reader = asyncio.create_task(self._read(cell, requests, outbox))
        try:
            while (message := await outbox.get()) is not None:
                yield message
        finally:
            # A satellite that has joined anew on another stream is not gone.
            if self._outboxes.get(cell, outbox) is outbox:
                self._outboxes.pop(cell, None)
                self._post(e.Leave(cell))
            await end(reader)

    async def _read(self, cell: str, requests: Any, outbox: asyncio.Queue) -> None:
        """Until the stream ends, breaks, or falls silent."""
        stream = aiter(requests)
        with contextlib.suppress(StopAsyncIteration, TimeoutError, grpc.RpcError):
            while True:
                async with asyncio.timeout(self._silence_s):
                    message = await anext(stream)
                if self._outboxes.get(cell) is not outbox:
                    break
                self._take(cell, message)
        outbox.put_nowait(None)

    def _take(self, cell: str, message: pb.TrainRequest) -> None:
        match message.WhichOneof("body"):
            case "claimed":
                self._post(e.Claim(cell, message.claimed.micro_id, message.claimed.step))
            case "computed":
                body = message.computed
                self._seen(cell, body.micro_id, seen_of(body), body.compute_s)
                self._post(e.Computed(cell, body.micro_id))
            case "leaving":
                self._post(e.Depart(cell))
            case "reduced":
                # The core's own end decides: where it has the whole sum, every part was given.
                if not message.reduced.ok:
                    log.warning("%s, step %d: %s", cell, message.reduced.step, message.reduced.error)

    async def GetState(self, request: pb.GetStateRequest, context: grpc.aio.ServicerContext) -> pb.GetStateResponse:
        state = self._state()
        return pb.GetStateResponse(
            version=state.step, step_open=state.phase is not s.Phase.IDLE, cells=list(state.cells),
            micro_computed=len(state.computed), micro_known=len(state.known),
        )  # fmt: skip


def register(server: RpcServer, service: CoreService) -> None:
    server.add(core_pb2_grpc.add_CoreServiceServicer_to_server, service, "gyre.api.trainer.v1.CoreService")


def computed_message(micro_id: str, seen: dict[str, SampleSeen], compute_s: float) -> pb.TrainRequest:
    samples = [
        pb.SampleStats(sample_id=sample_id, traceparent=sample.traceparent, sums=sample.sums, refused=sample.refused)
        for sample_id, sample in seen.items()
    ]
    return pb.TrainRequest(computed=pb.Computed(micro_id=micro_id, samples=samples, compute_s=compute_s))


def seen_of(body: pb.Computed) -> dict[str, SampleSeen]:
    return {
        sample.sample_id: SampleSeen(dict(sample.sums), sample.traceparent, sample.refused) for sample in body.samples
    }

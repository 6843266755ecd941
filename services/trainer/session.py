"""One stream of a satellite to the core, from Join to Release or to a death on either side (A8).

    Step     load the snapshot, begin to claim         Reduce   give the gradient to the sum
    Verdict  compute, hand back, or discard            Commit   acknowledge, forget the gradient

A cell that is asked back says Leaving: the core takes its gradient over by a Reduce of the two, and answers Release. When the stream ends, whatever
the reason, the gradient is dropped and the claims go back to the queue.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from pathlib import Path

import grpc.aio
import safetensors.torch

from gyre.api.trainer.v1 import core_pb2 as pb
from gyre.api.trainer.v1 import core_pb2_grpc
from gyre.errors import InvalidInput, Unavailable
from gyre.records import MicroStep
from gyre.rpc import open_channel
from gyre.service import Context
from gyre.tasks import end
from services.trainer.begun import Begun
from services.trainer.checkpoint import digest_of
from services.trainer.claimant import Claimant
from services.trainer.claims import HEARTBEATS, Claims
from services.trainer.compute import Compute
from services.trainer.core.events import Verdict
from services.trainer.gradient import SampleSeen
from services.trainer.rpc import ANSWERS, computed_message

log = logging.getLogger(__name__)

LEAVE_S_MAX = 30.0
"""How long a satellite that is asked back waits for Release (a micro-step ends, the core takes its gradient over, an update is made); after it,
it leaves as if it had died: what it had computed is computed again."""


class Session:
    """`run` once for each stream."""

    def __init__(self, context: Context, compute: Compute, claims: Claims) -> None:
        self._context = context
        self._compute = compute
        self._claims = claims
        self._claim_s = context.config.trainer.claim_s
        self._outgoing: asyncio.Queue[pb.TrainRequest | None] = asyncio.Queue()
        self._verdicts: dict[str, asyncio.Future[Verdict]] = {}
        self._computed: list[str] = []
        begun = Begun(context.folder.begun)
        self._claimant = Claimant(claims, compute, begun, self._claim_s, self._ask, self._report)
        self._is_leaving = False
        self._over = asyncio.Event()
        self._over.set()

    async def run(self) -> None:
        """Join, take part, leave. Returns when the core says Release, dies or cuts the stream; raises for this cell's own defects."""
        self._is_leaving = False
        self._over.clear()
        self._outgoing = asyncio.Queue()
        self._outgoing.put_nowait(pb.TrainRequest(join=pb.Join(cell=self._compute.cell)))
        channel = open_channel(self._context.folder.endpoint("trainer-0"), self._context.service_key)
        claiming = asyncio.create_task(self._claimant.run())
        beating = asyncio.create_task(self._beat())
        hearing = asyncio.create_task(self._hear(core_pb2_grpc.CoreServiceStub(channel)))
        try:
            done, _ = await asyncio.wait({claiming, beating, hearing}, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            self._outgoing.put_nowait(None)
            await end(claiming, beating, hearing)
            await self._drop()
            await channel.close()
            self._over.set()

    async def leave(self) -> None:
        """Ask to go, and wait until nothing of this cell is needed any more (LEAVE_S_MAX at most)."""
        self._is_leaving = True
        self._claimant.may_claim.clear()
        self._outgoing.put_nowait(pb.TrainRequest(leaving=pb.Leaving()))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LEAVE_S_MAX):
                await self._over.wait()

    async def _hear(self, stub: core_pb2_grpc.CoreServiceStub) -> None:
        try:
            async for message in stub.Train(self._say()):
                if not await self._act(message):
                    return
        except grpc.aio.AioRpcError as error:
            log.info("the core is away: %s", error.code())
        except (OSError, InvalidInput) as error:
            log.warning("cannot take part in the step: %s", error)

    async def _say(self) -> AsyncIterator[pb.TrainRequest]:
        """Ends by a word of its own: a generator that is cancelled while it waits cannot be closed cleanly."""
        while (message := await self._outgoing.get()) is not None:
            yield message

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(self._claim_s / HEARTBEATS)
            self._outgoing.put_nowait(pb.TrainRequest(alive=pb.Alive()))

    async def _act(self, message: pb.TrainResponse) -> bool:
        """False: this cell may go."""
        match message.WhichOneof("body"):
            case "step":
                await self._compute.run(self._load, Path(message.step.snapshot_path), message.step.checksum)
                if not self._is_leaving:
                    self._claimant.may_claim.set()
            case "verdict":
                waiting = self._verdicts.get(message.verdict.micro_id)
                if waiting is not None and not waiting.done():
                    waiting.set_result(ANSWERS[message.verdict.answer])
            case "reduce":
                await self._reduce(message.reduce)
            case "commit":
                self._claimant.may_claim.clear()
                await self._compute.forget_gradient()
                computed, self._computed = self._computed, []
                await self._claims.commit(computed)
                self._outgoing.put_nowait(pb.TrainRequest(committed=pb.Committed(step=message.commit.step)))
            case "release":
                return False
        return True

    def _load(self, path: Path, checksum: str) -> None:
        """The core's weights of this step. Raises InvalidInput when the file is not the one that was meant."""
        if (found := digest_of(path)) != checksum:
            raise InvalidInput(f"snapshot {path}: sha256 {found}, the core says {checksum}")
        self._compute.policy.load(safetensors.torch.load_file(path))

    async def _ask(self, micro: MicroStep) -> Verdict:
        waiting = self._verdicts[micro.micro_id] = asyncio.get_running_loop().create_future()
        self._outgoing.put_nowait(pb.TrainRequest(claimed=pb.Claimed(micro_id=micro.micro_id, step=micro.step)))
        try:
            return await waiting
        finally:
            self._verdicts.pop(micro.micro_id, None)

    async def _report(self, micro_id: str, seen: dict[str, SampleSeen], compute_s: float) -> None:
        self._computed.append(micro_id)
        self._outgoing.put_nowait(computed_message(micro_id, seen, compute_s))

    async def _reduce(self, order: pb.Reduce) -> None:
        error = ""
        try:
            await self._compute.sum_gradients(order.rank, order.world_size, Path(order.store_path))
        except Unavailable as failure:
            error = str(failure)
        reduced = pb.Reduced(step=order.step, round=order.round, ok=not error, error=error)
        self._outgoing.put_nowait(pb.TrainRequest(reduced=reduced))

    async def _drop(self) -> None:
        """As if this cell had died: the gradient is gone, others may have the claims at once."""
        self._claimant.may_claim.clear()
        self._computed.clear()
        await self._claims.pause()
        await self._compute.close_group()
        await self._compute.forget_gradient()
        await self._claims.hand_back_all()

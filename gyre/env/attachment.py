"""The environment process's side of `EnvironmentService.Attach`: one stream to the gateway, for ever.

    Hello ──▶  ◀── Welcome          ◀── Assignment ── Episode ── Started, Ended ──▶ ◀── Accepted
    Heartbeat ──▶ …                 ◀── Cancel, Suspend, Resume, Truncate

The stream may break at any time and the gateway may be another process when it is back: executions go on meanwhile, the next Hello names them, and
each Started and Ended that was not accepted is sent again, under the request id it had, until it is. Of several gateways the next one is
asked when the stream to one of them broke; model calls then go there, too.
"""

import asyncio
import contextlib
import itertools
import json
import logging
import traceback
import uuid
from collections.abc import AsyncIterator, Callable

import aiohttp
import grpc
import grpc.aio

from gyre.api.rollout.v1 import environments_pb2 as pb
from gyre.api.rollout.v1 import environments_pb2_grpc as rpc
from gyre.env.driving import Endpoint
from gyre.env.environment import Environment, Evidence, Task
from gyre.env.episode import Ending, Episode, Limits
from gyre.env.limits import OBSERVATION_BYTES_MAX, cut_detail
from gyre.env.model import ChatModel
from gyre.env.outside import ToolGateway
from gyre.env.shelf import Shelf
from gyre.env.wall import WallClock
from gyre.errors import InvalidInput, Unavailable
from gyre.ids import sample_id
from gyre.rpc import open_channel
from gyre.tasks import end

log = logging.getLogger(__name__)

RECONNECT_FIRST_S = 0.1
RECONNECT_MAX_S = 2.0
HEARTBEAT_S = 1.0
"""Until the gateway has said how often it wants to hear from us."""
CONNECT_S = 5.0
"""Of several gateways one that takes longer to connect is passed over."""
KEEPALIVE_S = 10.0
"""A gateway that says nothing on the wire for twice this long is gone, or stands still."""
STOP_AGAIN_S = 30.0
"""Closing a world may take this long: a second cancellation would cut it short."""
LIMITS = ("turns", "tokens", "calls")
"""What a gateway may say that ends an execution; anything else that ends it early is `truncated`."""
_NEVER = {grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNIMPLEMENTED}

_Execution = tuple[str, int]


class Attachment:
    """Serves `factory` under `name` with at most `slots` executions at once."""

    def __init__(
        self, factory: Callable[[Task], Environment], name: str, slots: int, address: str, key: str = "",
        shelf: Shelf | None = None, outside: ToolGateway | None = None,
    ) -> None:  # fmt: skip
        """`address`: host:port of a gateway, or of several with commas between them. `outside`: the way out of its executions, started and closed
        with it."""
        if slots < 1:
            raise InvalidInput(f"slots must be at least 1, not {slots}")
        self._factory = factory
        self._name = name
        self._slots = asyncio.Semaphore(slots)
        self._slots_count = slots
        self._addresses = [one for said in address.split(",") if (one := said.strip())]
        if not self._addresses:
            raise InvalidInput("an address of a gateway is needed: host:port")
        self._key = key
        self._instance = uuid.uuid4().hex
        self._shelf = shelf or Shelf()
        self._outside = outside
        self._welcome = pb.Welcome()
        self._endpoint = Endpoint()
        self._episodes: dict[_Execution, asyncio.Task] = {}
        self._walls: dict[_Execution, WallClock] = {}
        self._unaccepted: dict[str, pb.AttachRequest] = {}
        self._is_welcome = False
        self._outgoing: asyncio.Queue[pb.AttachRequest | None] = asyncio.Queue()
        self._requests = 0
        self.attached = asyncio.Event()
        """Set once a gateway has said Welcome."""

    @property
    def lease_s(self) -> float:
        """After this long a silence executions are given to others, as far as the gateway has said."""
        return 2 * (self._welcome.heartbeat_s or HEARTBEAT_S)

    async def serve(self) -> None:
        """Until cancelled. Raises Unavailable for a wrong key, InvalidInput when the gateway refuses this environment."""
        # no bound of ours: calls that wait for hours, of an execution that is suspended, would be in the way of all others
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(connector=connector) as self._http:
            wait_s = RECONNECT_FIRST_S
            try:
                if self._outside is not None:
                    await self._outside.start()
                for address in itertools.cycle(self._addresses):
                    was_attached = await self._attached_to(address)
                    wait_s = RECONNECT_FIRST_S if was_attached else min(2 * wait_s, RECONNECT_MAX_S)
                    await asyncio.sleep(wait_s)
            finally:
                await self._stop_all()
                if self._outside is not None:
                    await self._outside.close()
                self._shelf.close()

    async def _attached_to(self, address: str) -> bool:
        """One connection until it breaks; whether it got as far as a Welcome."""
        async with open_channel(address, self._key, KEEPALIVE_S) as channel:
            try:  # a gateway may be long in coming; where there is another one, that is asked meanwhile
                async with asyncio.timeout(CONNECT_S if len(self._addresses) > 1 else None):
                    await channel.channel_ready()
            except TimeoutError:
                log.info("%s cannot be reached", address)
                return False
            return await self._stream(rpc.EnvironmentServiceStub(channel), address)

    async def _stream(self, stub: rpc.EnvironmentServiceStub, address: str) -> bool:
        welcomed = False
        self._is_welcome, self._outgoing = False, (outgoing := asyncio.Queue())
        call = stub.Attach(self._sending(outgoing), wait_for_ready=True)
        beating = asyncio.create_task(self._beat(outgoing))
        try:
            async for message in call:
                kind = message.WhichOneof("body")
                if kind == "welcome":
                    welcomed = True
                    self._take_welcome(message.welcome)
                elif kind == "refused" and not welcomed:
                    raise InvalidInput(f"the gateway refused environment `{self._name}`: {message.refused.message}")
                else:
                    self._take(kind, message)
            log.info("the gateway closed the stream")
        except grpc.aio.AioRpcError as error:
            if error.code() in _NEVER:
                raise Unavailable(f"{address} refused this environment: {error.details()}") from error
            log.info("the stream to %s broke (%s); attaching again", address, error.details())
        finally:
            self._is_welcome = False
            beating.cancel()
            # The end of what we send: a generator that is still waiting when the loop closes is an error in the log.
            outgoing.put_nowait(None)
            call.cancel()
        return welcomed

    async def _sending(self, outgoing: asyncio.Queue[pb.AttachRequest | None]) -> AsyncIterator[pb.AttachRequest]:
        # Endings that are not on record yet count as running: nobody must start them over.
        known = set(self._episodes) | {(m.execution_id, m.attempt) for m in self._unaccepted.values()}
        running = [pb.Running(execution_id=execution, attempt=attempt) for execution, attempt in sorted(known)]
        hello = pb.Hello(environment=self._name, slots=self._slots_count, instance_id=self._instance, running=running)
        yield pb.AttachRequest(request_id=self._request_id(), hello=hello)
        while (message := await outgoing.get()) is not None:
            yield message

    async def _beat(self, outgoing: asyncio.Queue[pb.AttachRequest | None]) -> None:
        while True:
            # Three beats to the bound: one may be late.
            await asyncio.sleep((self._welcome.heartbeat_s or HEARTBEAT_S) / 3)
            outgoing.put_nowait(pb.AttachRequest(request_id=self._request_id(), heartbeat=pb.Heartbeat()))

    def _take_welcome(self, welcome: pb.Welcome) -> None:
        self._welcome = welcome
        self._endpoint.move(welcome.api_base)
        for gone in welcome.unknown:
            self._forget((gone.execution_id, gone.attempt), "no longer wanted after the stream broke")
        self._is_welcome = True
        for message in self._unaccepted.values():
            self._outgoing.put_nowait(message)
        self.attached.set()

    def _take(self, kind: str | None, message: pb.AttachResponse) -> None:
        execution = (message.execution_id, message.attempt)
        if kind == "assignment":
            self._begin(execution, message.assignment)
        elif kind == "cancel":
            self._forget(execution, message.cancel.reason)
        elif kind in ("suspend", "resume"):
            if (wall := self._walls.get(execution)) is not None:
                wall.pause() if kind == "suspend" else wall.resume()
        elif kind == "truncate":
            if (wall := self._walls.get(execution)) is not None:
                said = message.truncate.reason
                wall.expire(said if said in LIMITS else "truncated")
        elif kind == "accepted":
            self._unaccepted.pop(message.request_id, None)
        elif kind == "refused":
            self._unaccepted.pop(message.request_id, None)
            log.warning("%s attempt %d: the gateway refused a message: %s", *execution, message.refused.message)

    def _begin(self, execution: _Execution, assignment: pb.Assignment) -> None:
        if execution in self._episodes:  # assigned twice: it runs already
            return
        if any(name == execution[0] and attempt > execution[1] for name, attempt in self._episodes):
            log.info("%s attempt %d was assigned late: a newer one runs", *execution)
            return
        for older in [key for key in self._episodes if key[0] == execution[0] and key[1] < execution[1]]:
            self._forget(older, "a newer attempt was assigned")
        self._walls[execution] = WallClock()
        task = asyncio.create_task(self._run(execution, assignment), name=f"{execution[0]}-a{execution[1]}")
        self._episodes[execution] = task
        task.add_done_callback(lambda _: (self._episodes.pop(execution, None), self._walls.pop(execution, None)))

    async def _run(self, execution: _Execution, assignment: pb.Assignment) -> None:
        async with self._slots:
            try:
                ended = _ended(await self._episode(execution, assignment).run())
            except Exception:
                # Whatever it is (an assignment that cannot be read, an environment that lies in a way nobody thought of), it is told: an execution
                # about which nothing is said is waited for until its wall clock is over.
                log.exception("%s attempt %d came to no ending of its own", *execution)
                detail = cut_detail(traceback.format_exc(limit=-8))
                ended = pb.Ended(ending="failed", reason="environment_error", detail=detail)
            finally:
                if self._outside is not None:
                    await self._outside.dismiss(sample_id(*execution))
            self._say(execution, ended=ended)

    def _episode(self, execution: _Execution, assignment: pb.Assignment) -> Episode:
        async def started(evidence: Evidence) -> None:
            self._say(
                execution,
                started=pb.Started(
                    image_digest=evidence.image_digest, tool_versions=evidence.tool_versions,
                    dependency_snapshot=evidence.dependency_snapshot, is_replay=evidence.is_replay,
                ),
            )  # fmt: skip

        fixed = {
            "model": self._welcome.model or "policy", "max_tokens": assignment.output_tokens_max,
            "temperature": assignment.temperature, "top_p": assignment.top_p,
        }  # fmt: skip
        task = Task(
            task_id=assignment.task_id, task_type=assignment.task_type, seed=assignment.seed,
            payload=json.loads(assignment.payload_json or "{}"),
        )  # fmt: skip
        limits = Limits(
            wall_s=assignment.wall_s, turns_max=assignment.turns_max,
            observation_bytes_max=self._welcome.observation_bytes_max or OBSERVATION_BYTES_MAX,
            context_tokens_max=assignment.context_tokens_max,
        )  # fmt: skip
        model = ChatModel(self._http, self._endpoint, assignment.api_key, fixed, assignment.traceparent)
        keeper = self._shelf.keeper(*execution, task.task_type)
        way_out = None
        if self._outside is not None:
            way_out = self._outside.admit(
                sample_id(*execution), lambda: keeper.journal, traceparent=assignment.traceparent
            )
        return Episode(
            self._factory, task, limits, model, started, assignment.traceparent, wall=self._walls[execution], keeper=keeper,
            way_out=way_out,
        )  # fmt: skip

    def _say(self, execution: _Execution, **body: pb.Started | pb.Ended) -> None:
        """Keep it until it is accepted; a broken stream's successor sends it again.

        Before its Welcome nothing is sent on a stream: what was said on the one before goes first, or an Ended would come before its Started."""
        request = pb.AttachRequest(
            request_id=self._request_id(), execution_id=execution[0], attempt=execution[1], **body
        )
        self._unaccepted[request.request_id] = request
        if self._is_welcome:
            self._outgoing.put_nowait(request)

    def _forget(self, execution: _Execution, why: str) -> None:
        """Stop it if it runs, and say no more about it."""
        if (task := self._episodes.get(execution)) is not None:
            log.info("%s attempt %d is cancelled: %s", *execution, why)
            task.cancel()
        for request_id in [
            key for key, message in self._unaccepted.items() if (message.execution_id, message.attempt) == execution
        ]:
            del self._unaccepted[request_id]

    async def _stop_all(self) -> None:
        tasks = list(self._episodes.values())
        with contextlib.suppress(asyncio.CancelledError):
            await end(*tasks, again_s=STOP_AGAIN_S)

    def _request_id(self) -> str:
        self._requests += 1
        return f"{self._instance[:8]}-{self._requests}"


def _ended(ending: Ending) -> pb.Ended:
    message = pb.Ended(
        ending=ending.ending, reason=ending.reason, detail=ending.detail, external_calls=ending.external_calls,
        snapshots=ending.snapshots, rollback_turns=ending.rollback_turns,
        quota_left=ending.quota_left if ending.quota_left >= 0 else None,
    )  # fmt: skip
    if (found := ending.evaluation) is not None:
        message.evaluation.CopyFrom(
            pb.Evaluation(
                outcome=found.outcome, valid=found.valid, milestones=found.milestones,
                milestone_weights=found.milestone_weights, milestone_turns=found.milestone_turns,
                evidence_json=found.evidence_json, tries=found.tries,
            )
        )  # fmt: skip
    return message

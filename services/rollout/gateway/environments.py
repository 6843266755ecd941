"""`EnvironmentService.Attach`: one stream for each environment process; what comes in is checked and handed to leasing."""

import asyncio
import logging
from collections.abc import AsyncIterator, Coroutine
from typing import Any, Protocol

import grpc.aio

from gyre.api.rollout.v1 import environments_pb2 as pb
from gyre.api.rollout.v1 import environments_pb2_grpc as rpc
from gyre.errors import Conflict, GyreError, InvalidInput
from services.rollout.core.leases import Attachment

log = logging.getLogger(__name__)

OUTGOING_MAX = 20_000
RUNNING_MAX = 10_000
LIFE_SIGN_S = 0.25
"""How often an environment counts as alive while the gateway cannot read what it says."""
ENDINGS_MAX = 256
"""`Ended` messages of one stream that are worked on at once; more wait unread."""


MESSAGES_PER_S_MAX = 2_000
"""Read from one stream; more wait in the sender's own buffers. A process that starts or ends a thousand executions at once is through at once."""
REFUSED_MAX = 1_000
"""Messages of one stream that were refused, after which it is ended: whoever is wrong so often is no client of ours. It may attach anew."""
REFUSED_LOGGED_MAX = 100


class Pace:
    """So many a second, and no more. Pure: the clock is the caller's."""

    def __init__(self, per_s: int) -> None:
        self._per_s, self._left, self._since_s = per_s, per_s, 0.0

    def wait_s(self, now_s: float) -> float:
        """Seconds to wait before the next one, which is counted."""
        if now_s - self._since_s >= 1.0:
            self._since_s, self._left = now_s, self._per_s
        self._left -= 1
        return 0.0 if self._left >= 0 else max(0.0, self._since_s + 1.0 - now_s)


class Listener(Protocol):
    """What leasing answers."""

    def welcome(self, hello: Attachment) -> tuple[pb.Welcome, list[pb.AttachResponse]]: ...

    def heard(self, instance_id: str) -> bool: ...

    def gone(self, instance_id: str) -> None: ...

    async def started(self, instance_id: str, message: pb.AttachRequest) -> bool: ...

    async def ended(self, instance_id: str, message: pb.AttachRequest) -> bool: ...


class Stream:
    """What goes out to one environment process."""

    def __init__(self) -> None:
        self.queue: asyncio.Queue[pb.AttachResponse | None] = asyncio.Queue(OUTGOING_MAX)
        self.refused = 0

    def send(self, message: pb.AttachResponse | None) -> None:
        try:
            self.queue.put_nowait(message)
        except asyncio.QueueFull:
            # It does not read; whatever it should have heard is said again when it attaches anew.
            self.queue = asyncio.Queue(OUTGOING_MAX)
            self.queue.put_nowait(None)


class Environments(rpc.EnvironmentServiceServicer):
    """All attached streams, by instance."""

    def __init__(self) -> None:
        self.listener: Listener
        self._streams: dict[str, Stream] = {}

    def send(self, instance_id: str, message: pb.AttachResponse) -> None:
        """Dropped when the process is away: it is told again when it attaches."""
        if (stream := self._streams.get(instance_id)) is not None:
            stream.send(message)

    async def Attach(
        self, request_iterator: AsyncIterator[pb.AttachRequest], context: grpc.aio.ServicerContext
    ) -> AsyncIterator[pb.AttachResponse]:
        """One stream until it breaks, is replaced by a newer one of the same process, or the gateway stops."""
        requests = aiter(request_iterator)
        first = await anext(requests, None)
        if first is None:
            return
        stream = Stream()
        try:
            instance, replies = self._hello(first, stream)
        except GyreError as error:
            yield _refused(first, error)
            return
        for reply in replies:
            yield reply
        reader = asyncio.create_task(self._read(requests, instance, stream))
        try:
            while (message := await stream.queue.get()) is not None:
                yield message
        finally:
            reader.cancel()
            if self._streams.get(instance) is stream:
                del self._streams[instance]
                self.listener.gone(instance)

    def _hello(self, first: pb.AttachRequest, stream: Stream) -> tuple[str, list[pb.AttachResponse]]:
        if first.WhichOneof("body") != "hello":
            raise InvalidInput("the first message of a stream must be Hello")
        hello = first.hello
        if len(hello.running) > RUNNING_MAX or len(hello.instance_id) > 128 or len(hello.environment) > 128:
            raise InvalidInput(f"Hello is too large: at most {RUNNING_MAX} running executions, names of 128 characters")
        attachment = Attachment(
            hello.instance_id,
            hello.environment,
            hello.slots,
            0.0,
            True,
            {r.execution_id: r.attempt for r in hello.running},
        )
        welcome, more = self.listener.welcome(attachment)
        older, self._streams[hello.instance_id] = self._streams.get(hello.instance_id), stream
        if older is not None:
            older.send(None)
        return hello.instance_id, [pb.AttachResponse(request_id=first.request_id, welcome=welcome), *more]

    async def _read(self, requests: AsyncIterator[pb.AttachRequest], instance: str, stream: Stream) -> None:
        endings, pace = asyncio.Semaphore(ENDINGS_MAX), Pace(MESSAGES_PER_S_MAX)
        now_s = asyncio.get_running_loop().time
        working: set[asyncio.Task] = set()
        try:
            async for message in requests:
                if (wait_s := pace.wait_s(now_s())) > 0:
                    await self._unread(instance, asyncio.sleep(wait_s))
                if not self.listener.heard(instance):
                    log.info("%s was silent for too long and was forgotten: it has to attach anew", instance)
                    break
                kind = message.WhichOneof("body")
                if kind == "ended":
                    await self._unread(instance, endings.acquire())
                    task = asyncio.create_task(self.answer(message, instance))
                    working.add(task)
                    task.add_done_callback(lambda done: (working.discard(done), endings.release()))
                elif kind != "heartbeat":
                    await self._unread(instance, self.answer(message, instance))
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError) as error:
            log.info("stream of %s: %s", instance, error)
        finally:
            stream.send(None)

    async def _unread(self, instance: str, work: Coroutine[Any, Any, Any]) -> None:
        """Do `work` while nothing is read of the stream. What is silent meanwhile is this gateway (its bus is away, say), not the
        environment, whose stream stands; its executions must not be given out again for that."""
        doing = asyncio.ensure_future(work)
        try:
            while not (await asyncio.wait({doing}, timeout=LIFE_SIGN_S))[0]:
                self.listener.heard(instance)
            doing.result()
        finally:
            doing.cancel()
        self.listener.heard(instance)

    async def answer(self, message: pb.AttachRequest, instance: str) -> None:
        """Hand a message on, and say Accepted or Refused to the process's present stream."""
        try:
            match message.WhichOneof("body"):
                case "started":
                    is_on_record = await self.listener.started(instance, message)
                case "ended":
                    is_on_record = await self.listener.ended(instance, message)
                case "hello":
                    raise Conflict("this stream has said Hello already")
                case _:
                    raise InvalidInput("a message must have a body: started, ended or heartbeat")
        except GyreError as error:
            self._refuse(instance, message, error)
            return
        except Exception:
            log.exception("a defect at %s of %s", message.WhichOneof("body"), message.execution_id)
            return
        if is_on_record:
            reply = pb.AttachResponse(
                request_id=message.request_id,
                execution_id=message.execution_id,
                attempt=message.attempt,
                accepted=pb.Accepted(),
            )
            self.send(instance, reply)

    def _refuse(self, instance: str, message: pb.AttachRequest, error: GyreError) -> None:
        stream = self._streams.get(instance)
        if stream is None:
            return
        stream.refused += 1
        if stream.refused <= REFUSED_LOGGED_MAX:
            log.info("%s: refused %s of %.80s: %s", instance, message.WhichOneof("body"), message.execution_id, error)
        stream.send(_refused(message, error))
        if stream.refused == REFUSED_MAX:
            log.warning("%s: %d messages were refused; its stream is ended", instance, REFUSED_MAX)
            stream.send(None)


def _refused(message: pb.AttachRequest, error: GyreError) -> pb.AttachResponse:
    return pb.AttachResponse(
        request_id=message.request_id, execution_id=message.execution_id, attempt=message.attempt,
        refused=pb.Refused(code=error.code, message=str(error)[:2000]),
    )  # fmt: skip

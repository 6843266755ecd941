"""The client every service uses: publish a record, follow the facts, take work.

    publish(record)         durable when it returns; repeats are dropped by natural key
    follow(types)           every fact of these types from the start of the run, in order, for ever (a fold)
    durable(name, types)    facts with an acknowledgement each: a fact is acknowledged when its effect is stored
    tasks(...) / micros()   work queues: a delivery stays leased while `in_progress` is said, and comes again when it is not

Whatever happens to the server (kill -9, restart), these calls wait and go on; nothing is lost, and what is delivered twice has the same natural key.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import nats
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy

from gyre import key_files
from gyre.bus import streams
from gyre.bus.access import inbox_prefix
from gyre.bus.publishing import Publishing
from gyre.bus.pull import Pull
from gyre.bus.subjects import PREFIX, natural_key, subject_of, subject_pattern
from gyre.errors import Conflict, InvalidInput, Unavailable
from gyre.records import SCHEMA_VERSION, Fact, decode_fact, encode

log = logging.getLogger(__name__)

RECONNECT_WAIT_S = 0.2
PUBLISH_TIMEOUT_S = 3.0
PULL_BATCH = 256
FOLLOW_IDLE_S = 60.0
"""The server forgets a follower's consumer after this long without a request."""
EXPECTED = "Nats-Expected-Last-Subject-Sequence"
WRONG_LAST_SEQUENCE = 10071
"""The server's code for a message that expected another newest one."""


class Delivery:
    """One message: its record, and what to say about it to the server."""

    def __init__(self, message: Msg, record: Any, pull_subject: str) -> None:
        self._message = message
        self.record = record
        self.subject = pull_subject
        self.headers: dict[str, str] = dict(message.headers or {})
        meta = message.metadata
        self.sequence: int = meta.sequence.stream
        self.deliveries: int = meta.num_delivered
        self.pending: int = meta.num_pending
        """How many messages of this consumer are still to come: 0 when this was the newest."""

    @property
    def traceparent(self) -> str:
        return self.headers.get("traceparent", "")

    async def ack(self) -> None:
        """The effect is durable: never deliver again."""
        await self._say("+ACK")

    async def ack_confirmed(self, timeout_s: float = PUBLISH_TIMEOUT_S) -> None:
        """As `ack`, and wait for the server's word. Raises Unavailable."""
        try:
            await self._message.ack_sync(timeout=timeout_s)
        except Exception as error:
            raise Unavailable(f"no confirmation for {self.subject}: {error}") from error

    async def nak(self, delay_s: float = 0.0) -> None:
        """Deliver again, to anybody, after `delay_s`."""
        await self._say(f'-NAK {{"delay": {int(delay_s * 1e9)}}}' if delay_s else "-NAK")

    async def in_progress(self) -> None:
        """Still at work: start the lease's time anew."""
        await self._say("+WPI")

    async def term(self) -> None:
        """Never deliver again, though nothing came of it."""
        await self._say("+TERM")

    async def _say(self, word: str) -> None:
        await self._message._client.publish(self._message.reply, word.encode())


class Bus:
    """A connection of one service to the bus of one run."""

    def __init__(self, client: Client, run: str, service: str) -> None:
        self.client = client
        self.run = run
        self.service = service
        self.js: JetStreamContext = client.jetstream(timeout=PUBLISH_TIMEOUT_S)
        self.publishing = Publishing(client)
        self.on_dead_letter: Callable[[str, str], None] | None = None
        """Told subject and reason of each message that is set aside."""

    @classmethod
    async def connect(cls, url: str, run: str, service: str, seed_file: Path | None = None) -> "Bus":
        """`seed_file` holds the service's NATS key (gyre.bus.access). Raises Unavailable; NotFound or ConfigError where that is none."""
        if "." in run or not run:
            raise InvalidInput(f"{run!r} cannot name a run: it is one token of a bus subject")
        options: dict[str, Any] = {}
        if seed_file:
            key_files.read(seed_file)
            options["nkeys_seed"] = str(seed_file)
        try:
            client = await nats.connect(
                url, name=f"{service}@{run}", max_reconnect_attempts=-1, reconnect_time_wait=RECONNECT_WAIT_S,
                connect_timeout=5, error_cb=_log_error, ping_interval=10, pending_size=64 * 1024 * 1024,
                inbox_prefix=inbox_prefix(service), **options,
            )  # fmt: skip
        except Exception as error:
            raise Unavailable(f"cannot reach the bus at {url}: {error}") from error
        return cls(client, run, service)

    async def close(self) -> None:
        with contextlib.suppress(Exception):
            async with asyncio.timeout(5):
                await self.client.drain()
        with contextlib.suppress(Exception):  # an absent server cannot be drained to, and would be looked for for ever
            async with asyncio.timeout(5):
                await self.client.close()

    async def publish(
        self, record: msgspec.Struct, traceparent: str = "", deadline_s: float | None = None, after: int | None = None
    ) -> int:
        """Store a record on its stream; returns its sequence. As `give` and what that answers."""
        return await (await self.give(record, traceparent, deadline_s, after))

    async def give(
        self, record: msgspec.Struct, traceparent: str = "", deadline_s: float | None = None, after: int | None = None
    ) -> Awaitable[int]:
        """Send a record to its stream; what is answered must be awaited, and says its sequence once it is stored. That waits through an absent
        server up to `deadline_s` (for ever by default).

        `after`: store it only if that is the sequence of the newest record of its subject (0: of none), so that of two who write there one is told.
        Raises InvalidInput for what can never be stored (no subject, larger than the server takes). What is answered raises Unavailable at the
        deadline, Conflict when somebody else has written after `after`.
        """
        headers = {
            "Nats-Msg-Id": f"{self.run}.{natural_key(record)}",
            "Gyre-Schema": str(SCHEMA_VERSION),
            "Gyre-Service": self.service,
        }
        traceparent = traceparent or getattr(record, "traceparent", "")
        if traceparent:
            headers["traceparent"] = traceparent
        version = getattr(record, "policy_version", getattr(record, "version", None))
        if version is not None:
            headers["Gyre-Policy-Version"] = str(version)
        if after is not None:
            headers[EXPECTED] = str(after)
        return await self._give(subject_of(self.run, record), encode(record), headers, deadline_s)

    async def _give(
        self, subject: str, data: bytes, headers: dict[str, str], deadline_s: float | None
    ) -> Awaitable[int]:
        if len(data) > self.client.max_payload > 0:
            raise InvalidInput(
                f"{subject}: {len(data)} bytes, the bus takes {self.client.max_payload}; use the blob store"
            )
        loop = asyncio.get_running_loop()
        end_s = None if deadline_s is None else loop.time() + deadline_s
        answer: asyncio.Future[int]
        try:
            answer = await self.publishing.give(subject, data, headers, PUBLISH_TIMEOUT_S)
        except Exception as error:
            answer = loop.create_future()
            answer.set_exception(error)
        return self._until_stored(answer, subject, data, headers, end_s)

    async def _until_stored(
        self, answer: asyncio.Future[int], subject: str, data: bytes, headers: dict[str, str], end_s: float | None
    ) -> int:
        """Again and again; the server knows a repeated message by its name."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                return await answer
            except Exception as error:
                if getattr(error, "err_code", None) == WRONG_LAST_SEQUENCE:
                    return await self._stored(subject, data, error)
                if self.client.is_closed or (end_s is not None and loop.time() >= end_s):
                    raise Unavailable(f"{subject} was not stored: {error}") from error
                log.warning("publish to %s: %r; trying again", subject, error)
                await asyncio.sleep(RECONNECT_WAIT_S)
            with contextlib.suppress(Exception):
                answer = await self.publishing.give(subject, data, headers, PUBLISH_TIMEOUT_S)

    async def _stored(self, subject: str, data: bytes, error: Exception) -> int:
        """The newest of its subject is ours all the same where only the server's answer to an earlier try was lost. Raises Conflict."""
        newest = await self.js.get_last_msg(streams.FACTS, subject)
        if newest.data != data:
            raise Conflict(f"{subject}: somebody else wrote there: {error}") from error
        return newest.seq or 0

    async def dead_letter(self, subject: str, data: bytes, reason: str, sequence: int = 0) -> None:
        """Set aside what could not be understood, with its reason; of one stream `sequence` once, however often it is delivered meanwhile."""
        headers = {"Gyre-Reason": reason[:500], "Gyre-Subject": subject, "Gyre-Service": self.service}
        if sequence:
            headers["Nats-Msg-Id"] = f"{self.run}.dead.{self.service}.{subject}.{sequence}"
        await (await self._give(f"{PREFIX}.{self.run}.dead.{self.service}", data, headers, deadline_s=10))
        if self.on_dead_letter is not None:
            self.on_dead_letter(subject, reason)

    async def follow(self, types: Sequence[type], after: int = 0) -> AsyncIterator[tuple[Fact, Delivery]]:
        """Every fact of `types` past sequence `after`, from the run's first by default, in stream order, each once, for ever.

        A reader has caught up when `Delivery.pending` is 0 (or `last_sequence` was passed).
        """
        sequence = after
        patterns = [subject_pattern(self.run, kind) for kind in types]
        while not self.client.is_closed:
            config = ConsumerConfig(
                filter_subjects=patterns, ack_policy=AckPolicy.NONE, mem_storage=True, inactive_threshold=FOLLOW_IDLE_S,
                deliver_policy=DeliverPolicy.BY_START_SEQUENCE, opt_start_seq=sequence + 1,
            )  # fmt: skip
            async for delivery in self._consume(streams.FACTS, config, PULL_BATCH):
                if delivery.sequence > sequence:
                    sequence = delivery.sequence
                    yield delivery.record, delivery

    async def all_of(self, kind: type, key: str) -> list[tuple[Fact, int]]:
        """Every fact of this type under one key of its subject that is there now, with its sequence, in stream order."""
        pattern, found = subject_pattern(self.run, kind, key), list[tuple[Fact, int]]()
        try:
            newest = (await self.js.get_last_msg(streams.FACTS, pattern)).seq or 0
        except nats.js.errors.NotFoundError:
            return found
        while not self.client.is_closed:
            config = ConsumerConfig(
                filter_subjects=[pattern], ack_policy=AckPolicy.NONE, mem_storage=True, inactive_threshold=FOLLOW_IDLE_S,
                deliver_policy=DeliverPolicy.BY_START_SEQUENCE, opt_start_seq=(found[-1][1] if found else 0) + 1,
            )  # fmt: skip
            async for delivery in self._consume(streams.FACTS, config, PULL_BATCH):
                found.append((delivery.record, delivery.sequence))
                if delivery.sequence >= newest:
                    return found
        raise Unavailable(f"{pattern} cannot be read")

    async def durable(self, name: str, types: Sequence[type], ack_wait_s: float = 30.0) -> AsyncIterator[Delivery]:
        """Facts with explicit acknowledgement under a durable name; unacknowledged ones come again."""
        config = ConsumerConfig(
            durable_name=f"{self.run}-{name}", filter_subjects=[subject_pattern(self.run, kind) for kind in types],
            ack_policy=AckPolicy.EXPLICIT, ack_wait=ack_wait_s, max_ack_pending=20_000, deliver_policy=DeliverPolicy.ALL,
        )  # fmt: skip
        while not self.client.is_closed:
            async for delivery in self._consume(streams.FACTS, config, PULL_BATCH):
                yield delivery

    async def last_sequence(self, types: Sequence[type] = ()) -> int:
        """Sequence of the newest fact of `types` (0 where there is none): what a reader must have seen to have caught up.

        Raises Unavailable when the bus does not answer."""
        newest = 0
        for kind in types:
            try:
                found = await self.js.get_last_msg(streams.FACTS, subject_pattern(self.run, kind))
                newest = max(newest, found.seq or 0)
            except nats.js.errors.NotFoundError:
                pass
            except (nats.errors.Error, TimeoutError) as error:
                raise Unavailable(f"the newest {kind.__name__} cannot be looked up: {error!r}") from error
        return newest

    async def facts_stream(self) -> tuple[str, int]:
        """When the stream of facts was created, which names it, and its last sequence. Waits through an absent server."""
        while True:
            try:
                info = await self.js.stream_info(streams.FACTS)
                return str(info.created), info.state.last_seq
            except nats.errors.Error as error:
                if self.client.is_closed:
                    raise Unavailable(f"{streams.FACTS} cannot be looked at: {error}") from error
                log.warning("%s cannot be looked at (%r); trying again", streams.FACTS, error)
                await asyncio.sleep(RECONNECT_WAIT_S)

    async def newest(self, kind: type, key: str) -> Fact | None:
        """The newest fact of this type under one key of its subject; None where there is none."""
        try:
            found = await self.js.get_last_msg(streams.FACTS, subject_pattern(self.run, kind, key))
        except nats.js.errors.NotFoundError:
            return None
        return decode_fact(found.data or b"")

    async def _consume(self, stream: str, config: ConsumerConfig, batch: int) -> AsyncIterator[Delivery]:
        """Messages of one consumer until it is lost; the caller makes it anew."""
        pull = None
        try:
            info = await self.js.add_consumer(stream, config)
            pull = Pull(self.client, stream, info.name, batch)
            await pull.open()
            while True:
                message = await pull.next()
                if message is not None and (delivery := await self._decoded(message)) is not None:
                    yield delivery
        except (Unavailable, nats.errors.Error, TimeoutError) as error:
            if not self.client.is_closed:
                log.info("%s: consumer lost (%s), making it anew", stream, error)
                await asyncio.sleep(RECONNECT_WAIT_S)
        finally:
            if pull is not None:
                with contextlib.suppress(Exception):
                    await pull.close()

    async def _decoded(self, message: Msg, decode=decode_fact) -> Delivery | None:
        try:
            return Delivery(message, decode(message.data), message.subject)
        except InvalidInput as error:
            log.error("%s is poison: %s", message.subject, error)
            await self.dead_letter(message.subject, message.data, str(error), message.metadata.sequence.stream)
            if message.metadata.num_delivered and message.reply:
                await message._client.publish(message.reply, b"+TERM")
            return None


async def _log_error(error: Exception) -> None:
    if str(error):
        log.warning("bus: %s", error)

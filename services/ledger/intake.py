"""From the bus into the books: gather, store, then acknowledge."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import NamedTuple

from gyre.bus import Bus, Delivery, streams
from gyre.bus.subjects import PREFIX
from gyre.clock import Clock
from gyre.errors import Unavailable
from gyre.records import AlarmRaised, Fact, encode
from gyre.tasks import end
from services.ledger.core.rows import FACT_TYPES
from services.ledger.storage import Writer

log = logging.getLogger(__name__)

BATCH_FACTS_MAX = 500
BATCH_WAIT_S = 0.05
"""A transaction is begun when one of the two is reached: bounds how long a fact is on its way into the books."""
ACK_WAIT_S = 10.0
"""A fact that is not acknowledged for this long comes again: how long a ledger that died keeps its last facts waiting."""
CONSUMER = "ledger"


class Intake:
    """Takes every fact of the run; each is acknowledged after its rows are stored."""

    def __init__(self, bus: Bus, writer: Writer, watchers: Sequence[Callable[[Fact], None]] = ()) -> None:
        """Each of `watchers` is told every fact once, when it is in the books; it returns at once and raises nothing."""
        self._bus = bus
        self._writer = writer
        self._watchers = watchers
        self._waiting: asyncio.Queue[Delivery] = asyncio.Queue(2 * BATCH_FACTS_MAX)

    async def run(self) -> None:
        """For ever."""
        reading = asyncio.ensure_future(self._read())
        try:
            while True:
                batch = await self._gather()
                await self._store(batch)
        finally:
            await end(reading)

    async def _read(self) -> None:
        async for delivery in self._bus.durable(CONSUMER, FACT_TYPES, ACK_WAIT_S):
            await self._waiting.put(delivery)

    async def _gather(self) -> list[Delivery]:
        """At least one delivery, and what else arrives within BATCH_WAIT_S of it."""
        batch = [await self._waiting.get()]
        loop = asyncio.get_running_loop()
        until_s = loop.time() + BATCH_WAIT_S
        while len(batch) < BATCH_FACTS_MAX and (left_s := until_s - loop.time()) > 0:
            try:
                batch.append(self._waiting.get_nowait())
            except asyncio.QueueEmpty:
                await asyncio.sleep(min(left_s, 0.005))
        return batch

    async def _store(self, batch: list[Delivery]) -> None:
        stored = await self._writer.write_facts([(delivery.record, delivery.sequence) for delivery in batch])
        for fact in stored.fresh:
            for watch in self._watchers:
                watch(fact)
        refused = dict(stored.refused)
        for index, delivery in enumerate(batch):
            try:
                if index in refused:
                    log.error("%s cannot be stored: %s", delivery.subject, refused[index])
                    await self._bus.dead_letter(
                        delivery.subject, encode(delivery.record), refused[index], delivery.sequence
                    )
                await delivery.ack()
            except Exception as error:
                # The bus is away: the fact comes again and changes nothing.
                log.info("%s was not acknowledged: %r", delivery.subject, error)


class Progress(NamedTuple):
    """How far the books are behind the bus."""

    sequence: int
    """Every fact up to this one of the stream is stored."""
    waiting: int
    """Facts that are not, as far as the bus knows."""
    set_aside: int
    """Messages that could not be stored, ever."""


async def progress(bus: Bus) -> Progress:
    """Raises Unavailable."""
    try:
        consumer = await bus.js.consumer_info(streams.FACTS, f"{bus.run}-{CONSUMER}")
        subject = f"{PREFIX}.{bus.run}.dead.{bus.service}"
        dead = await bus.js.stream_info(streams.DEAD, subjects_filter=subject)
    except Exception as error:
        raise Unavailable(f"the bus does not say how far the intake is: {error}") from error
    sequence = (consumer.ack_floor.stream_seq or 0) if consumer.ack_floor else 0
    waiting = (consumer.num_pending or 0) + (consumer.num_ack_pending or 0)
    return Progress(sequence, waiting, int((dead.state.subjects or {}).get(subject, 0)))


class Alarms:
    """What an operator must hear of the intake, said from any thread and never waited for."""

    def __init__(self, bus: Bus, clock: Clock) -> None:
        self._bus, self._clock = bus, clock
        self._loop = asyncio.get_running_loop()
        self._saying: set[asyncio.Task] = set()
        self._poisoned = 0

    def database(self, message: str) -> None:
        """The database does not take facts."""
        self._loop.call_soon_threadsafe(self._say, "ledger_database", message)

    def poison(self, subject: str, reason: str) -> None:
        """A message was set aside; said of the first, second, fourth, … so that a flood of them is not answered by a flood of alarms."""
        self._poisoned += 1
        if self._poisoned & (self._poisoned - 1) == 0:
            words = (
                f"{self._poisoned} messages that cannot be stored were set aside, with their bytes, in {streams.DEAD}"
            )
            self._say("poison", f"{words}; the newest: {subject}: {reason}")

    def _say(self, kind: str, message: str) -> None:
        task = self._loop.create_task(raise_alarm(self._bus, self._clock, kind, message))
        self._saying.add(task)
        task.add_done_callback(self._saying.discard)

    def close(self) -> None:
        for task in self._saying:
            task.cancel()


async def raise_alarm(bus: Bus, clock: Clock, kind: str, message: str) -> None:
    """Say it on the bus, where operators look; waits through an absent server, so run it as a task."""
    await bus.publish(AlarmRaised(kind=kind, message=message, service="ledger", at_s=clock.now_s()))

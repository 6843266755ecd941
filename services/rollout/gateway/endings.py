"""Endings of executions, each once on record: of what an environment ran, and of what none ever will (C6)."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from gyre.bus import Bus, Delivery
from gyre.clock import Clock
from gyre.records import TaskDispatched
from services.rollout.core.ending import Said
from services.rollout.core.leases import Lease
from services.rollout.gateway.calls import ModelCalls
from services.rollout.gateway.held import Hands
from services.rollout.gateway.messages import ended_fact, sample_of

log = logging.getLogger(__name__)


class Endings:
    """Said, put on record, acknowledged, in this order."""

    def __init__(
        self, hands: Hands, calls: ModelCalls, bus: Bus, clock: Clock, sure: Callable[[], Awaitable[None]]
    ) -> None:
        """`sure()` returns when what is in hand is ours as far as the record says."""
        self._hands, self._sure = hands, sure
        self._book, self._orders = hands.book, hands.restored.orders
        self._calls, self._bus, self._clock = calls, bus, clock
        self._ending: dict[str, asyncio.Task] = {}
        """By sample."""
        self._working: set[asyncio.Task] = set()

    def is_ending(self, lease: Lease) -> bool:
        return sample_of(lease) in self._ending

    def start(self, lease: Lease, said: Said) -> asyncio.Task:
        """Whoever says it first decides; the others get the same task, done when the ending is on record."""
        sample = sample_of(lease)
        if sample not in self._ending:
            self._ending[sample] = self.spawn(self._put(lease, said))
            self._ending[sample].add_done_callback(lambda _: self._ending.pop(sample, None))
        return self._ending[sample]

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task:
        """Work that the clock must not wait for: other leases need their life signs meanwhile."""
        task = asyncio.create_task(work)
        self._working.add(task)
        task.add_done_callback(self._worked)
        return task

    def _worked(self, task: asyncio.Task) -> None:
        self._working.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("a lease could not be brought to its end", exc_info=task.exception())

    async def _put(self, lease: Lease, said: Said) -> None:
        held = self._hands.held.get(lease.execution_id)
        totals = await self._calls.stop(sample_of(lease))
        await self._sure()
        if self._is_fenced(lease):
            await self._calls.forget(sample_of(lease))
            self._hands.drop(lease)
            if held is not None:
                held.lost("a newer attempt is on record")
            return
        times = self._hands.times(sample_of(lease))
        record = ended_fact(lease, said, totals, *times, self._clock.now_s(), held.traceparent if held else "")
        await self._bus.publish(record)
        self._book.attempts.ended(lease.execution_id, lease.attempt)
        await self._calls.forget(sample_of(lease))
        self._orders.apply(record)
        self._hands.drop(lease)
        if held is not None:
            held.ended(said.ending, said.reason, totals.turns)
            if not self._is_fenced(lease):
                await held.delivery.ack()

    def _is_fenced(self, lease: Lease) -> bool:
        """A newer attempt is on record, or its ending: what this one says counts no longer, and the message on the queue is that one's."""
        attempts, execution = self._book.attempts, lease.execution_id
        return max(attempts.newest(execution), attempts.ended_attempt(execution)) > lease.attempt

    async def exhaust(self, delivery: Delivery) -> None:
        """Every attempt was lost: an ending on record, never a zero and never silence."""
        task, attempts = delivery.record, self._book.attempts
        made = attempts.made(task.execution_id, task.attempt_base)
        detail = f"{made} attempts were lost with their environments or gateways"
        attempt = max(task.attempt_base + delivery.deliveries, attempts.newest(task.execution_id))
        await self._put_unleased(task, attempt, Said("failed", "attempts_exhausted", detail, None), delivery)

    async def end_unleased(self, task: TaskDispatched, said: Said, delivery: Delivery | None) -> None:
        """The ending of what no environment runs: of its newest attempt, or of a first that nobody made."""
        attempt = max(task.attempt_base + 1, self._book.attempts.newest(task.execution_id))
        await self._put_unleased(task, attempt, said, delivery)

    async def _put_unleased(self, task: TaskDispatched, attempt: int, said: Said, delivery: Delivery | None) -> None:
        lease = Lease(task, attempt, "", self._clock.monotonic_s())
        times = self._hands.times(sample_of(lease))
        self._book.attempts.ended(task.execution_id, attempt)  # first: nobody leases it while its ending is on its way
        totals = await self._calls.close(sample_of(lease))
        record = ended_fact(lease, said, totals, *times, self._clock.now_s(), delivery.traceparent if delivery else "")
        await self._bus.publish(record)
        self._orders.apply(record)
        self._hands.parked.pop(task.execution_id, None)
        self._hands.drop(lease)
        if delivery is not None:
            await delivery.ack()

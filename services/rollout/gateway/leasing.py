"""Leases of executions: claimed from the work queue, held while the environment is heard from, given back or ended (A1, C6).

TaskDispatched ─▶ claim ─▶ offer ─┬─ ASSIGN ──▶ ExecutionLeased ─▶ Assignment ─▶ Started ─▶ ExecutionStarted ─▶ Accepted
     ▲                            ├─ CONTINUE ▶ the same attempt goes on
     │ nak: silent for lease_s    ├─ PARK ────▶ offered again when something changes
     └────────────────────────────┴─ EXHAUSTED, overdue, Ended ─▶ ExecutionEnded ─▶ acknowledged ─▶ Accepted

Which attempt counts is decided at once, by the book, one task after the other; putting leases on record and telling the environments goes on for
up to LEASES_AT_ONCE executions at a time. Of one execution nothing is considered before what was begun for it is done.
"""

import asyncio
import contextlib
import logging
from collections.abc import Coroutine
from typing import Any

from gyre.api.rollout.v1 import environments_pb2 as pb
from gyre.bus import Bus, Delivery
from gyre.bus.work import WorkQueue, tasks
from gyre.clock import Clock
from gyre.config import Config
from gyre.errors import InvalidInput
from gyre.ids import sample_id
from gyre.records import ExecutionLeased
from gyre.telemetry import emit_span
from services.rollout.core.commands import Order
from services.rollout.core.ending import Said, check_evidence
from services.rollout.core.leases import Attachment, Lease, LeaseBook, Offer
from services.rollout.gateway.calls import ModelCalls
from services.rollout.gateway.endings import Endings
from services.rollout.gateway.environments import Environments
from services.rollout.gateway.held import Hands, Held
from services.rollout.gateway.http import MODEL_NAME
from services.rollout.gateway.messages import assignment, cancel, checked_ending, sample_of, standing, started_fact
from services.rollout.gateway.peers import Peers
from services.rollout.gateway.restore import Restored
from services.rollout.gateway.watch import TICK_S, Watch

log = logging.getLogger(__name__)

CLAIM_WAIT_S = 1.0
LEASES_AT_ONCE = 64
"""Of which each waits for the bus once."""
PARKED_MAX = 2048
"""Tasks held for environments that are not there; beyond it nothing is claimed. Given back they would only come again at once."""
EARLY_MAX = 4
"""Messages kept of one execution until its lease is back; it has one Started and one Ended to say."""
ACK_PENDING_MAX = 20_000
UNLIMITED_DELIVERIES = -1
"""Attempts are counted here (rollout.attempts_max), so that the last one becomes an ending on record and not silence."""


class Leasing:
    """All executions in this gateway's hands. Listener of gateway.environments."""

    def __init__(
        self, config: Config, bus: Bus, clock: Clock, secret: bytes, api_base: str, restored: Restored, calls: ModelCalls,
        environments: Environments, holder: str, peers: Peers | None = None,
    ) -> None:  # fmt: skip
        self._config = config
        self._bus = bus
        self._clock = clock
        self._secret = secret
        self._api_base = api_base
        self._holder = holder
        self.peers = peers
        self._restored = restored
        self._orders = restored.orders
        self._calls = calls
        self._environments = environments
        self._lease_s = config.rollout.lease_s
        self.book = LeaseBook(restored.attempts, self._lease_s, config.rollout.attempts_max, clock.monotonic_s())
        self._hands = Hands(self.book, restored)
        self.endings = Endings(self._hands, calls, bus, clock, lambda: self.watch.sure())
        self.watch = Watch(self, self._hands, clock, self._lease_s, peers)
        self._beginning: dict[str, asyncio.Task] = {}
        """By execution: leases on their way to the record and to the environment."""
        self._places = asyncio.Semaphore(LEASES_AT_ONCE)
        self._leases: asyncio.TaskGroup
        self._queue: WorkQueue = tasks(bus, self._lease_s, ACK_PENDING_MAX, UNLIMITED_DELIVERIES)

    # -- from environments

    def welcome(self, hello: Attachment) -> tuple[pb.Welcome, list[pb.AttachResponse]]:
        runs, held = dict(hello.executions), self._hands.held
        unknown = self.book.attach(hello, self._clock.monotonic_s())
        welcome = pb.Welcome(
            api_base=self._api_base, model=MODEL_NAME, heartbeat_s=self._lease_s / 2,
            unknown=[pb.Running(execution_id=execution, attempt=attempt) for execution, attempt in unknown],
            observation_bytes_max=self._config.rollout.observation_bytes_max,
        )  # fmt: skip
        missed = [
            self._assignment(lease, held[lease.execution_id]) for lease in self.book.leases.values()
            if lease.instance_id == hello.instance_id and lease.execution_id not in runs and lease.execution_id in held
        ]  # fmt: skip
        told = [
            standing(execution, attempt, order)
            for execution, attempt in hello.executions.items()
            if (order := self._orders.get(execution)) is not None
        ]
        log.info("%s attached: %d slots, %d running", hello.environment, hello.slots, len(hello.executions))
        self._hands.changed.set()
        return welcome, missed + told

    def heard(self, instance_id: str) -> bool:
        """A sign of life; False when it comes too late, from a process whose executions were given out again."""
        if instance_id not in self.book.attachments:
            return False
        self.book.heard(instance_id, self._clock.monotonic_s())
        return True

    def gone(self, instance_id: str) -> None:
        self.book.detach(instance_id, self._clock.monotonic_s())

    async def started(self, instance_id: str, message: pb.AttachRequest) -> bool:
        """Whether it is on record now; False when it has to wait for its lease. Raises GyreError to refuse."""
        lease = self.book.find(instance_id, message.execution_id, message.attempt)
        if lease is None:
            return self._wait_for_lease(instance_id, message)
        said = message.started
        try:
            check_evidence(said.image_digest, said.tool_versions, said.dependency_snapshot)
        except InvalidInput as error:
            await self.end(lease, Said("failed", "environment_invalid", str(error), None))
            raise
        if lease.started_s is None:
            lease.started_s = self._clock.monotonic_s()
            self._restored.started_at_s[sample_of(lease)] = self._clock.now_s()
        held = self._hands.held.get(lease.execution_id)
        fact = started_fact(lease, said, self._restored.started_at_s[sample_of(lease)])
        await self._bus.publish(fact, traceparent=held.traceparent if held else "")
        return True

    async def ended(self, instance_id: str, message: pb.AttachRequest) -> bool:
        """As `started`. What breaks the contract ends the execution as failed, and is on record as that."""
        await self.watch.sure()
        if self.book.attempts.has_ended(message.execution_id, message.attempt):
            return True
        lease = self.book.find(instance_id, message.execution_id, message.attempt)
        if lease is None:
            return self._wait_for_lease(instance_id, message)
        await self.end(lease, checked_ending(message.ended, lease.started_s is not None))
        return True

    def _wait_for_lease(self, instance_id: str, message: pb.AttachRequest) -> bool:
        early = self._hands.early.setdefault(message.execution_id, [])
        if len(early) < EARLY_MAX and all(known.request_id != message.request_id for _, known in early):
            early.append((instance_id, message))
        return False

    # -- from the work queue

    async def claim(self) -> None:
        """For ever: take tasks while a slot is free, or while what already runs waits for its lease."""
        try:
            async with asyncio.TaskGroup() as self._leases:
                await self._claim()
        except BaseExceptionGroup as group:  # an error at one lease is the error of all
            raise group.exceptions[0] from group

    async def _claim(self) -> None:
        is_asking, changed = False, self._hands.changed
        while True:
            has_use = self.book.free_slots() >= 1 or self.book.awaits_leases()
            if not has_use or len(self._hands.parked) >= PARKED_MAX:
                if is_asking:
                    # Our request still stands at the server: withdraw it, or a task would wait here unseen.
                    await self._queue.close()
                    is_asking = False
                changed.clear()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(TICK_S):
                        await changed.wait()
                continue
            delivery = await self._queue.next(CLAIM_WAIT_S)
            is_asking = delivery is None
            if delivery is not None:
                await self.watch.sure()
                await self.consider(delivery)

    async def consider(self, delivery: Delivery) -> None:
        task = delivery.record
        execution = task.execution_id
        while (begun := self._beginning.get(execution)) is not None:
            await asyncio.wait([begun])
        older, before = self.book.leases.get(execution), self.book.attempts.newest(execution)
        if older is not None and older.attempt <= task.attempt_base:
            await self._fence(older)
        now_s = self._clock.monotonic_s()
        if self.peers is not None and self.peers.is_left(task, self.book):
            self._hands.parked.pop(execution, None)
            return
        is_stopped = self._orders.is_held(execution) or self._orders.is_to_end(execution)
        if is_stopped and not self.book.may_still_run(execution, now_s):
            self._hands.parked[execution] = delivery
            return
        offer, lease = self.book.offer(task, delivery.deliveries, now_s, self._orders.releases(execution))
        self._hands.parked.pop(execution, None)
        match offer:
            case Offer.OVER:
                await delivery.ack()
            case Offer.PARK:
                self._hands.parked[execution] = delivery
            case Offer.EXHAUSTED:
                await self._close_attempt(sample_id(execution, before))
                await self.endings.exhaust(delivery)
            case Offer.CONTINUE:
                assert lease is not None
                await self._continue(lease, delivery)
            case Offer.ASSIGN:
                assert lease is not None
                self._hands.early.pop(execution, None)
                held = self._hands.take(lease, delivery)
                await self._places.acquire()
                self._begin(execution, self._assign(lease, held, sample_id(execution, before)))

    def _begin(self, execution: str, work: Coroutine[Any, Any, None]) -> None:
        """Go on with this execution beside others; its place and its entry end with it."""

        async def begun() -> None:
            try:
                await work
            finally:
                del self._beginning[execution]
                self._places.release()

        self._beginning[execution] = self._leases.create_task(begun())

    async def _close_attempt(self, sample: str) -> None:
        """A newer attempt or an ending takes its place: its session and times are wanted no longer."""
        await self._calls.close(sample)
        self._hands.forget_times(sample)

    async def _assign(self, lease: Lease, held: Held, before: str) -> None:
        """On record first, then to the environment; `before` is the sample whose place it takes."""
        task, now_s = lease.task, self._clock.now_s()
        await self._close_attempt(before)
        if not self._hands.has(held):  # given back, or ended, meanwhile
            return
        emit_span(
            "execution queued", task.dispatched_at_s or now_s, now_s, held.delivery.traceparent,
            **{"gyre.execution": lease.execution_id, "gyre.attempt": lease.attempt, "gyre.tier": task.tier},
        )  # fmt: skip
        self._restored.leased_at_s[sample_of(lease)] = now_s
        self._calls.idle.begins(sample_of(lease), now_s, held.traceparent, lease.execution_id, lease.attempt)
        leased = ExecutionLeased(
            execution_id=lease.execution_id, group_id=task.group_id, attempt=lease.attempt, holder=self._holder, at_s=now_s
        )  # fmt: skip
        await self._bus.publish(leased, traceparent=held.traceparent)
        self.book.attempts.recorded(lease.execution_id, lease.attempt)
        self._orders.apply(leased)
        if self._hands.has(held):
            self._environments.send(lease.instance_id, self._assignment(lease, held))

    async def _continue(self, lease: Lease, delivery: Delivery) -> None:
        execution, held = lease.execution_id, self._hands.held
        if execution in held:
            held[execution].renew(delivery)
        else:
            self._hands.take(lease, delivery)
            if self.peers is not None:
                self.peers.took(execution)
            self._restored.resume(lease, self._clock.now_s(), self._clock.monotonic_s())
            since_s = self._calls.last_at_s(sample_of(lease)) or self._clock.now_s()
            self._calls.idle.begins(sample_of(lease), since_s, held[execution].traceparent, execution, lease.attempt)
            log.info("%s attempt %d goes on", execution, lease.attempt)
        for instance_id, message in self._hands.early.pop(execution, ()):
            await self._environments.answer(message, instance_id)

    def _assignment(self, lease: Lease, held: Held) -> pb.AttachResponse:
        return assignment(lease, held.traceparent, self._secret)

    # -- endings

    async def end(self, lease: Lease, said: Said) -> None:
        """Returns when the ending is on record. Whoever says it first decides; the others wait for the same record."""
        await asyncio.shield(self.endings.start(lease, said))

    # -- commands

    @property
    def parked(self) -> dict[str, Delivery]:
        """Tasks that nobody can take now, by execution."""
        return self._hands.parked

    def lease(self, execution_id: str) -> Lease | None:
        """The lease in this gateway's hands."""
        return self._hands.lease(execution_id)

    def hold(self, lease: Lease, order: Order) -> None:
        """Stop the execution's clocks, let them run again, or end them now; its model calls are ModelCalls' to hold."""
        (lease.suspend if order.is_held else lease.resume)(self._clock.monotonic_s())
        self._environments.send(lease.instance_id, standing(lease.execution_id, lease.attempt, order))

    async def release(self, execution_id: str, reason: str) -> None:
        """Give out again what runs as a fenced attempt; nothing where that has happened already."""
        newest = self.book.attempts.newest(execution_id)
        if self.book.attempts.is_current(execution_id, newest):
            return
        for attachment in self.book.attachments.values():
            if attachment.executions.pop(execution_id, 0):
                self._environments.send(attachment.instance_id, cancel(execution_id, newest, reason))
        if (lease := self.lease(execution_id)) is not None and not self.endings.is_ending(lease):
            await self._calls.close(sample_of(lease))
            await self.give_back(lease, reason)

    async def _fence(self, lease: Lease) -> None:
        """A re-dispatch: the older attempt's words no longer count."""
        held = self._hands.held.get(lease.execution_id)
        self.cancel(lease, "a newer attempt was dispatched")
        await self._calls.close(sample_of(lease))
        self._hands.drop(lease)
        if held is not None:
            await held.delivery.ack()

    def stopped(self, execution_id: str, attempt: int) -> None:
        """By another gateway's word on record attempts below `attempt` count no longer; the message on the queue is that gateway's to answer."""
        lease = self.book.leases.get(execution_id)
        if lease is not None and (lease.attempt >= attempt or self.endings.is_ending(lease)):
            return
        reason = "another gateway has ended it, or leased a newer attempt"
        for instance_id, older in self.book.stop_below(execution_id, attempt):
            self._environments.send(instance_id, cancel(execution_id, older, reason))
        if lease is not None:
            log.warning("%s attempt %d is let go: %s", execution_id, lease.attempt, reason)
            self._calls.idle.ends(sample_of(lease), self._clock.now_s())
            if (held := self._hands.held.get(execution_id)) is not None:
                held.lost(reason)
            self._hands.drop(lease)

    def cancel(self, lease: Lease, reason: str) -> None:
        self._environments.send(lease.instance_id, cancel(lease.execution_id, lease.attempt, reason))

    async def give_back(self, lease: Lease, reason: str) -> None:
        """Somebody else gets it, as the next attempt (NeMo-RL#3599).

        Where its environment is gone its session and times stay until then: should that come back first, the same attempt goes on with them.
        """
        if self.book.leases.get(lease.execution_id) is not lease:
            return
        log.warning("%s attempt %d is given out again: %s", lease.execution_id, lease.attempt, reason)
        held = self._hands.let_go(lease.execution_id)
        if held is not None:
            held.lost(reason)
            if not held.is_lapsed:  # else it comes again by itself, or has come to another gateway
                await held.delivery.nak()

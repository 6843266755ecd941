"""Commands to executions, carried out (C2).

    ExecutionCommanded ─▶ Orders ─┬─ suspend ─▶ calls held, environment's wall clock stopped ─▶ ExecutionSuspended
                                  ├─ resume ──▶ the reverse ────────────────────────────────▶ ExecutionResumed
                                  ├─ truncate ▶ environment's wall clock ended, scores ─────▶ ExecutionEnded(timed_out, truncated)
                                  ├─ void ────▶ environment told to stop ───────────────────▶ ExecutionEnded(voided)
                                  └─ release ─▶ environment told to stop, delivery given back ▶ ExecutionLeased(next attempt)

What is queued is in nobody's hands: suspended it is parked when it comes, voided it ends here at once, by what the facts say of its task. So
does what is truncated before it was begun: it has left nothing that could be scored.
What cannot be done yet (an environment that has to attach again after a restart, a suspended execution that has not started) is tried again
every RETRY_S. A call that is being sampled when its execution is suspended is recorded when it is done, and answered when that is resumed.
"""

import asyncio
import logging

from gyre.bus import Bus
from gyre.clock import Clock
from gyre.ids import sample_id
from gyre.records import (
    ExecutionCommanded,
    ExecutionResumed,
    ExecutionSuspended,
    GroupDispatched,
    GroupSubmitted,
    TaskDispatched,
)
from services.rollout.core.commands import Order, Orders
from services.rollout.core.ending import Said
from services.rollout.gateway.calls import ModelCalls
from services.rollout.gateway.leasing import Leasing

log = logging.getLogger(__name__)

RETRY_S = 0.25


class Commands:
    """Carries out the standing command of each execution; doing so again is harmless."""

    def __init__(self, orders: Orders, leasing: Leasing, calls: ModelCalls, bus: Bus, clock: Clock, after: int) -> None:
        """`orders` as folded from the facts up to sequence `after`."""
        self._orders = orders
        self._leasing = leasing
        self._calls = calls
        self._bus = bus
        self._clock = clock
        self._after = after
        self._busy: set[str] = set()
        self._told: dict[str, str] = {}
        """Execution → sample whose environment was told that its time is up."""
        self._actions = {
            "suspend": self._suspend,
            "resume": self._resume,
            "truncate": self._truncate,
            "void": self._void,
            "release": self._release,
        }
        for execution in orders.held():
            calls.hold(sample_id(execution, leasing.book.attempts.newest(execution)))

    async def follow(self) -> None:
        """For ever."""
        attempts = self._leasing.book.attempts
        async for fact, _ in self._bus.follow([ExecutionCommanded], self._after):
            if attempts.ended_attempt(fact.execution_id) and not attempts.newest(fact.execution_id):
                continue
            if self._orders.apply(fact):
                log.info("%s: %s, by %s: %s", fact.execution_id, fact.command, fact.by, fact.reason)
                if fact.command == "release":
                    attempts.fence(fact.execution_id)
                self._leasing.endings.spawn(self.carry_out(fact.execution_id))

    async def retry(self) -> None:
        """For ever: what could not be carried out yet."""
        while True:
            await asyncio.sleep(RETRY_S)
            for execution in self._orders.outstanding():
                self._leasing.endings.spawn(self.carry_out(execution))

    async def carry_out(self, execution_id: str) -> None:
        """Bring the standing command's effect on record, as far as that is possible now."""
        if execution_id in self._busy:
            return
        self._busy.add(execution_id)
        try:
            while (order := self._orders.get(execution_id)) is not None and order.done < order.ordinal:
                if not await self._actions[order.command](order):
                    return
            self._told.pop(execution_id, None)
        finally:
            self._busy.discard(execution_id)

    async def _suspend(self, order: Order) -> bool:
        """Whether that was all, as in the other three."""
        ordinal, newest = order.ordinal, self._leasing.book.attempts.newest(order.execution_id)
        self._calls.hold(sample_id(order.execution_id, newest))
        lease = self._leasing.lease(order.execution_id)
        if lease is None:
            return False
        self._leasing.hold(lease, order)
        if lease.started_s is None:
            return False
        await self._say(ExecutionSuspended, order, ordinal, lease.attempt)
        return True

    async def _resume(self, order: Order) -> bool:
        ordinal, newest = order.ordinal, self._leasing.book.attempts.newest(order.execution_id)
        self._calls.go_on(sample_id(order.execution_id, newest))
        lease = self._leasing.lease(order.execution_id)
        if lease is not None:
            self._leasing.hold(lease, order)
        if order.suspended_at_s is None:  # nobody ever said that it was suspended
            order.done = max(order.done, ordinal)
        elif lease is None or lease.attempt != order.attempt:
            return False
        else:
            await self._say(ExecutionResumed, order, ordinal, lease.attempt)
        return True

    async def _truncate(self, order: Order) -> bool:
        """Told once: an environment that attaches again is told by what stands then. It ends by its own word, or by its deadline."""
        lease = self._leasing.lease(order.execution_id)
        if lease is None or lease.started_s is None:
            return await self._end(order, Said("voided", "truncated", order.reason, None))
        sample = sample_id(order.execution_id, lease.attempt)
        if self._told.get(order.execution_id) != sample:
            self._told[order.execution_id] = sample
            self._calls.go_on(sample)
            self._leasing.hold(lease, order)
        return False

    async def _void(self, order: Order) -> bool:
        return await self._end(order, Said("voided", "voided", order.reason, None))

    async def _end(self, order: Order, said: Said) -> bool:
        """Ended now, by this or by what came first; tried again while it may yet turn out to be in an environment's hands."""
        leasing, execution = self._leasing, order.execution_id
        if (lease := leasing.lease(execution)) is not None:
            leasing.cancel(lease, f"{said.reason}: {order.reason}")
            await leasing.end(lease, said)
            return False
        if (delivery := leasing.parked.get(execution)) is not None:
            await leasing.endings.end_unleased(delivery.record, said, delivery)
            return False
        if leasing.book.may_still_run(execution, self._clock.monotonic_s()) or self._is_elsewhere(execution):
            return False
        task = await self._task(order)
        if task is None:
            log.error("%s cannot be ended: no fact tells of its group", execution)
            order.done = order.ordinal
            return True
        if leasing.lease(execution) is None and execution not in leasing.parked:  # nor has it come meanwhile
            await leasing.endings.end_unleased(task, said, None)
        return False

    def _is_elsewhere(self, execution: str) -> bool:
        """In the hands of another gateway that lives."""
        return self._leasing.peers is not None and self._leasing.peers.is_elsewhere(execution)

    async def _release(self, order: Order) -> bool:
        """The next lease completes it."""
        await self._leasing.release(order.execution_id, f"released: {order.reason}")
        return False

    async def _task(self, order: Order) -> TaskDispatched | None:
        """The work-queue message as far as an ending needs it, from the facts."""
        dispatched = await self._bus.newest(GroupDispatched, order.group_id)
        submitted = await self._bus.newest(GroupSubmitted, order.group_id)
        if dispatched is None or submitted is None or order.execution_id not in dispatched.execution_ids:
            return None
        return TaskDispatched(
            execution_id=order.execution_id, group_id=order.group_id, member=dispatched.execution_ids.index(order.execution_id),
            task=submitted.task, tier=dispatched.tier, policy_version=dispatched.policy_version, seed=0,
            attempt_base=dispatched.attempt_base, fingerprint=dispatched.fingerprint, dispatched_at_s=dispatched.at_s,
        )  # fmt: skip

    async def _say(self, kind: type, order: Order, ordinal: int, attempt: int) -> None:
        fact = kind(
            execution_id=order.execution_id, group_id=order.group_id, attempt=attempt, ordinal=ordinal, at_s=self._clock.now_s()
        )  # fmt: skip
        await self._bus.publish(fact)
        self._orders.apply(fact)

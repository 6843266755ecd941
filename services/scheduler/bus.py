"""The scheduler's side of the bus: the state is the fold of the stream and of nothing else.

What the scheduler itself publishes also reaches the state through the stream: `publish` gives its sequence, `folded` waits until the fold has
passed it. So a restarted scheduler has exactly the state that the first one had, and no decision is taken twice.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Any

from gyre.bus import Bus, streams
from gyre.errors import GaveUp
from gyre.records import Fact, GroupDispatched, TaskDispatched
from gyre.records.lifecycle import ExecutionState
from gyre.telemetry import emit_span
from services.scheduler.core import FOLDED, State, apply
from services.scheduler.core.dispatch import task, tasks

log = logging.getLogger(__name__)

PUBLISHES_AT_ONCE = 64
"""Task messages in flight to the server: a boundary of thousands neither trickles nor floods."""


class Feed:
    """Folds the facts of a run into a state, and tells who waits how far it has come."""

    def __init__(self, bus: Bus, state: State, on_fact: Callable[[State, Any], None], sequence: int = 0) -> None:
        """`state` holds the facts up to `sequence`; `on_fact(state, fact)` is called before each fact that is folded live, that is after the
        catching up."""
        self.bus = bus
        self.state = state
        self.sequence = sequence
        self.changed = asyncio.Event()
        """Set at each fact; whoever acts on it clears it."""
        self._on_fact = on_fact
        self._live_after = float("inf")
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []

    async def check_whole(self) -> None:
        """Raises GaveUp where the beginning of the run is neither in the state nor on the stream: what would be folded is no state of it. Behind
        a snapshot, facts that are gone may have been of no concern, so they are only told of."""
        first = (await self.bus.js.stream_info(streams.FACTS)).state.first_seq
        if first > self.sequence + 1 and self.sequence == 0:
            raise GaveUp(
                f"the facts before {first} were removed from {streams.FACTS}, and no snapshot holds them: begin a new run"
            )
        if first > self.sequence + 1:
            log.warning(
                "the facts from %d to %d were removed from the stream, and the snapshot is older",
                self.sequence + 1,
                first - 1,
            )

    async def follow(self) -> None:
        """Fold for ever."""
        async for fact, delivery in self.bus.follow(FOLDED, self.sequence):
            if delivery.sequence > self._live_after:
                self._on_fact(self.state, fact)
            self._fold(fact, delivery.sequence)

    async def catch_up(self) -> None:
        """Returns when every fact that was there at the call is folded; `follow` must be running."""
        newest = await self.bus.last_sequence(FOLDED)
        self._live_after = newest
        await self.folded(newest)

    async def folded(self, sequence: int) -> None:
        """Returns when the fact with this sequence is part of the state."""
        if sequence > self.sequence:
            waiter = asyncio.get_running_loop().create_future()
            self._waiting.append((sequence, waiter))
            await waiter

    def _fold(self, fact: Fact, sequence: int) -> None:
        apply(self.state, fact)
        self.sequence = sequence
        self.changed.set()
        if self._waiting:
            reached = [waiter for wanted, waiter in self._waiting if wanted <= sequence]
            self._waiting = [(wanted, waiter) for wanted, waiter in self._waiting if wanted > sequence]
            for waiter in reached:
                if not waiter.done():
                    waiter.set_result(None)

    async def tell(self, facts: Sequence[Fact]) -> None:
        """Publish in this order; returns when they are part of the state."""
        last = 0
        for fact in facts:
            last = await self.bus.publish(fact)
        await self.folded(last)

    async def publish(self, facts: list[Fact]) -> None:
        """Facts in their order and, when they are part of the state, the task messages of the groups that they dispatch.

        A group's fact comes before its tasks: a crash between the two leaves executions that were never offered, which `offer_again` makes good.
        """
        await self.tell(facts)
        sent = [self.state.groups.get(fact.group_id) for fact in facts if isinstance(fact, GroupDispatched)]
        await self._offer(message for group in sent if group is not None for message in tasks(self.state, group))

    async def offer_again(self) -> int:
        """Publish the tasks of executions that were dispatched and never leased; the number of them.

        They may be on the queue already: server and gateway drop the repeat by its natural key.
        """
        return await self._offer(
            task(self.state, group, member)
            for group in list(self.state.groups.values())  # facts are folded meanwhile
            for member, execution in enumerate(group.executions.values())
            if execution.state == ExecutionState.QUEUED
        )

    async def _offer(self, messages: Iterable[TaskDispatched]) -> int:
        """The number of them. Each is made when its turn comes: a task's payload is part of every message of its group."""
        offered, left = 0, iter(messages)
        while chunk := list(islice(left, PUBLISHES_AT_ONCE)):
            await asyncio.gather(*(self.bus.publish(message, self._root(message)) for message in chunk))
            offered += len(chunk)
        return offered

    def _root(self, message: TaskDispatched) -> str:
        """The root of the execution's trace, from submission to dispatch; its traceparent goes with the task."""
        group = self.state.groups.get(message.group_id)
        submitted_at_s = group.submitted_at_s if group else message.dispatched_at_s
        return emit_span(
            "execution.dispatch", submitted_at_s, message.dispatched_at_s, gyre_execution=message.execution_id,
            gyre_group=message.group_id, gyre_task_type=message.task.task_type, gyre_tenant=message.task.tenant, gyre_tier=message.tier,
            gyre_purpose=message.task.purpose, gyre_policy_version=message.policy_version, gyre_fingerprint=message.fingerprint,
        )  # fmt: skip

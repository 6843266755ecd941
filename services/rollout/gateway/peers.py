"""Several gateways of one run: each session is served by one of them, any of them takes a call (state and restarts).

    a call ─▶ any gateway ─┬─ the session is its own, or nobody's, or a dead gateway's ─▶ claimed; restored from its records; answered
                           └─ a living peer's ─▶ passed on to that (forward.py)

A claim (gyre.bus.claims) says who serves a session; a gateway whose own claim changes nothing for `lease_s` is dead. That is for order only: what
keeps two gateways from writing the same session is the log, which takes a record only after the newest one its writer knows (Bus.publish `after`).

What peers say in facts is folded here too: a gateway knows of every execution which attempt counts, and in whose hands it is.
"""

import asyncio
import logging
from collections.abc import Callable

from gyre.bus import Bus
from gyre.bus.claims import Claim, Claims
from gyre.clock import Clock
from gyre.errors import Conflict, GyreError
from gyre.ids import sample_id
from gyre.records import ExecutionEnded, ExecutionLeased, ExecutionStarted, TaskDispatched
from services.rollout.core.leases import LeaseBook
from services.rollout.gateway.restore import Restored

log = logging.getLogger(__name__)

SIGNS_PER_LEASE = 4
CLAIM_TRIES = 3
LEFT_LEASES = 4
"""Leases within which a task that was left to its holder comes again, where that does not sign it; meanwhile other gateways may have had it."""
_FOLLOWED = (ExecutionLeased, ExecutionStarted, ExecutionEnded)


class Peers:
    """This gateway among the others of its run."""

    def __init__(
        self, bus: Bus, clock: Clock, name: str, address: str, lease_s: float, holders: dict[str, str]
    ) -> None:
        """`name`: the process's own, and that of the one that starts in its place; `address`: its HTTP side; `holders`: execution under way →
        gateway that leased it."""
        self.name = name
        self._bus, self._clock = bus, clock
        self._claims = Claims(bus)
        self._address, self._lease_s = address, lease_s
        self._heard: dict[str, tuple[float, str]] = {}
        """Peer → when its claim changed last (monotonic), and its address."""
        self._own: dict[str, Claim] = {}
        """By sample."""
        self._holders = holders
        self._left_until_s: dict[str, float] = {}
        """By execution: left to its holder; coming again before this (monotonic) it is in nobody's hands."""
        self._sequence = 0
        """Newest fact folded."""
        self._folded = asyncio.Event()
        self._is_ready = asyncio.Event()

    # -- who lives

    async def ready(self) -> None:
        """All that were there before us have been heard of."""
        await self._is_ready.wait()

    async def run(self) -> None:
        """For ever: give signs of life, hear those of others."""
        await self._give_sign()
        async with asyncio.TaskGroup() as both:
            both.create_task(self._listen())
            both.create_task(self._sign())

    def address(self, peer: str) -> str | None:
        """Its HTTP side; None when it is dead, or nobody has heard of it."""
        heard_s, address = self._heard.get(peer, (0.0, ""))
        return address if address and self._clock.monotonic_s() - heard_s < self._lease_s else None

    def is_there(self, address: str) -> bool:
        """A living peer has this address."""
        return any(self.address(peer) == address for peer in self._heard)

    async def leave(self) -> None:
        """A clean stop: others need not wait for silence."""
        try:
            await self._claims.put(f"gateways.{self.name}", "")
        except GyreError as error:
            log.info("%s", error)

    async def _sign(self) -> None:
        while True:
            await self._give_sign()
            await asyncio.sleep(self._lease_s / SIGNS_PER_LEASE)

    async def _give_sign(self) -> None:
        try:
            await self._claims.put(f"gateways.{self.name}", self._address)
        except GyreError as error:
            log.warning("no sign of life could be given: %s", error)

    async def _listen(self) -> None:
        async for claim in self._claims.follow("gateways.*"):
            peer = claim.key.partition(".")[2]
            if peer == self.name:
                self._is_ready.set()  # its own first sign comes after all that was said before
            else:
                self._heard[peer] = self._clock.monotonic_s(), claim.value

    # -- who serves

    async def server(self, sample: str) -> str:
        """Address of the living peer that serves this session; empty when it is served here, from now on at the latest.

        Raises Unavailable, Conflict (claimed by several at once: ask again)."""
        if sample in self._own:
            return ""
        for _ in range(CLAIM_TRIES):
            claim = await self._claims.get(f"sessions.{sample}")
            if claim.value not in ("", self.name) and (address := self.address(claim.value)) is not None:
                return address
            try:
                self._own[sample] = await self._claims.put(claim.key, self.name, claim.revision)
            except Conflict:
                continue
            if claim.value not in ("", self.name):
                log.info("%s is served here now: %s is dead", sample, claim.value)
            return ""
        raise Conflict(f"{sample} is being claimed by several gateways")

    def lost(self, sample: str) -> None:
        """The log says that somebody else writes there: ask anew who serves it."""
        self._own.pop(sample, None)

    async def closed(self, sample: str) -> None:
        """The session is over."""
        claim = self._own.pop(sample, None)
        if claim is not None:
            try:
                await self._claims.put(claim.key, "", claim.revision)
            except GyreError as error:
                log.info("%s", error)

    # -- what they say

    def is_elsewhere(self, execution_id: str) -> bool:
        """A living peer has it in its hands."""
        holder = self._holders.get(execution_id, self.name)
        return holder != self.name and self.address(holder) is not None

    def took(self, execution_id: str) -> None:
        """It is in no other gateway's hands any more."""
        self._holders.pop(execution_id, None)
        self._left_until_s.pop(execution_id, None)

    def is_left(self, task: TaskDispatched, book: LeaseBook) -> bool:
        """What was delivered to us is to be left, unsigned and unanswered, to the living peer that leased it.

        One that stood still goes on with what it has, and its own signs keep it from being delivered again. Where it comes again all the same, that
        peer has given it back: it is anybody's. A dead one leaves an orphan."""
        execution, newest = task.execution_id, book.attempts.newest(task.execution_id)
        if newest <= task.attempt_base or not book.attempts.is_current(execution, newest) or book.runs(execution):
            return False
        now_s = self._clock.monotonic_s()
        if self.is_elsewhere(execution):
            if now_s < self._left_until_s.get(execution, 0.0):
                self.took(execution)
                return False
            self._left_until_s[execution] = now_s + LEFT_LEASES * self._lease_s
            book.adopted(execution)
            return True
        if self._holders.get(execution, self.name) != self.name:
            book.orphaned(execution, now_s)
        return False

    async def caught_up(self) -> None:
        """What is on record now is folded. Waits through an absent bus."""
        while True:
            try:
                newest = await self._bus.last_sequence(_FOLLOWED)
                break
            except GyreError as error:
                log.info("what the others put on record cannot be looked up: %s", error)
                await asyncio.sleep(self._lease_s / SIGNS_PER_LEASE)
        while self._sequence < newest:
            self._folded.clear()
            await self._folded.wait()

    async def follow(
        self, book: LeaseBook, restored: Restored, over: Callable[[str], None], stopped: Callable[[str, int], None], after: int
    ) -> None:  # fmt: skip
        """For ever. `over(sample)` for each attempt that ended or was fenced; `stopped(execution, attempt)`: by another gateway's word attempts below
        this one count no longer."""
        self._sequence = after
        async for fact, delivery in self._bus.follow(_FOLLOWED, after):
            sample = sample_id(fact.execution_id, fact.attempt)
            match fact:
                case ExecutionLeased():
                    before = book.attempts.newest(fact.execution_id)
                    book.attempts.recorded(fact.execution_id, fact.attempt)
                    restored.leased_at_s.setdefault(sample, fact.at_s)
                    self._holders[fact.execution_id] = fact.holder
                    self._left_until_s.pop(fact.execution_id, None)
                    if 0 < before < fact.attempt:
                        over(sample_id(fact.execution_id, before))
                    if fact.holder != self.name:
                        stopped(fact.execution_id, fact.attempt)
                case ExecutionStarted():
                    restored.started_at_s.setdefault(sample, fact.at_s)
                case ExecutionEnded():
                    book.attempts.ended(fact.execution_id, fact.attempt)
                    restored.orders.apply(fact)
                    if not book.attempts.newest(fact.execution_id):
                        self.took(fact.execution_id)
                    stopped(fact.execution_id, fact.attempt + 1)
                    restored.leased_at_s.pop(sample, None)
                    restored.started_at_s.pop(sample, None)
                    over(sample)
            self._sequence = delivery.sequence
            self._folded.set()

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
from gyre.records import ExecutionEnded, ExecutionLeased, ExecutionStarted
from services.rollout.core.leases import LeaseBook
from services.rollout.gateway.restore import Restored

log = logging.getLogger(__name__)

SIGNS_PER_LEASE = 4
CLAIM_TRIES = 3


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

    def was_elsewhere(self, execution_id: str) -> bool:
        """Another gateway leased it; said once: whoever asks takes it from there."""
        return self._holders.pop(execution_id, self.name) != self.name

    async def follow(self, book: LeaseBook, restored: Restored, over: Callable[[str], None], after: int) -> None:
        """For ever. `over(sample)` for each attempt whose ending is on record."""
        async for fact, _ in self._bus.follow((ExecutionLeased, ExecutionStarted, ExecutionEnded), after):
            sample = sample_id(fact.execution_id, fact.attempt)
            match fact:
                case ExecutionLeased():
                    book.attempts.recorded(fact.execution_id, fact.attempt)
                    restored.leased_at_s.setdefault(sample, fact.at_s)
                    self._holders[fact.execution_id] = fact.holder
                case ExecutionStarted():
                    restored.started_at_s.setdefault(sample, fact.at_s)
                case ExecutionEnded():
                    book.attempts.ended(fact.execution_id, fact.attempt)
                    self._holders.pop(fact.execution_id, None)
                    restored.leased_at_s.pop(sample, None)
                    restored.started_at_s.pop(sample, None)
                    over(sample)

"""The leases' clock: deadlines, environments that fell silent, parked tasks, and this gateway's own signs of life (C6).

    sign ≤ lease_s old ─▶ what is in hand is ours
    older (the process stood still) ─▶ others may have it by now: what they put on record meanwhile is folded before anything is said or done

Who stood still hears late what was said to it meanwhile, so for lease_s it judges nobody for silence.
"""

import asyncio
import logging
from typing import Protocol

from gyre.bus import Delivery
from gyre.clock import Clock
from services.rollout.core.ending import Said
from services.rollout.core.leases import Lease
from services.rollout.gateway.endings import Endings
from services.rollout.gateway.held import Hands
from services.rollout.gateway.peers import Peers

log = logging.getLogger(__name__)

TICK_S = 0.25
SIGNS_PER_LEASE = 3


class Keeper(Protocol):
    """What leasing does when it is time."""

    endings: Endings

    async def consider(self, delivery: Delivery) -> None: ...

    def cancel(self, lease: Lease, reason: str) -> None: ...

    async def give_back(self, lease: Lease, reason: str) -> None: ...


class Watch:
    """Looks after all that is in hand."""

    def __init__(self, keeper: Keeper, hands: Hands, clock: Clock, lease_s: float, peers: Peers | None) -> None:
        self._keeper, self._hands, self._clock, self._peers = keeper, hands, clock, peers
        self._lease_s, self._period_s = lease_s, lease_s / SIGNS_PER_LEASE
        self._looked_s = self._signed_s = clock.monotonic_s()
        self._judges_from_s = 0.0

    async def look_on(self) -> None:
        """For ever: every TICK_S."""
        while True:
            await asyncio.sleep(TICK_S)
            await self.look()

    async def sign_on(self) -> None:
        """For ever, whatever the other waits for."""
        while True:
            await asyncio.sleep(self._period_s)
            await self.sign()

    async def look(self) -> None:
        """Once."""
        await self.sure()
        now_s = self._clock.monotonic_s()
        if now_s - self._looked_s > self._period_s + TICK_S:
            log.warning("nothing was looked at for %.1f s", now_s - self._looked_s)
            self._judges_from_s = now_s + self._lease_s
        self._looked_s = now_s
        if now_s >= self._judges_from_s:
            self._judge(now_s)
        for delivery in list(self._hands.parked.values()):
            await self._keeper.consider(delivery)

    async def sign(self) -> None:
        """Once."""
        await self.sure()
        self._signed_s = self._clock.monotonic_s()
        for delivery in self._hands.deliveries():
            await delivery.in_progress()

    async def sure(self) -> None:
        """Returns when what is in hand is ours as far as the record says.

        What was not signed for a lease is delivered again, perhaps to others: what is parked is left to that, what is held is kept until somebody
        else has it on record."""
        if self._clock.monotonic_s() - self._signed_s <= self._lease_s:
            return
        self._hands.lapse()
        if self._peers is not None:
            await self._peers.caught_up()

    def _judge(self, now_s: float) -> None:
        endings, book = self._keeper.endings, self._hands.book
        for lease in book.overdue(now_s):
            if not endings.is_ending(lease):
                phase = "start" if lease.started_s is None else "end"
                self._keeper.cancel(lease, f"the environment did not {phase} in time")
                detail = f"no word of its {phase} within {lease.deadline_s() - lease.leased_s:.0f} s of its lease"
                endings.start(lease, Said("failed", "environment_hung", detail, None))
        for lease in book.lost(now_s):
            if not endings.is_ending(lease):
                endings.spawn(self._keeper.give_back(lease, "its environment is gone"))

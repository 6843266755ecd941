"""Cell i > 0: a satellite takes part in steps while it is in training, and holds nothing that its death could lose (A2, A8)."""

import asyncio
import logging

from gyre.bus import BlobStore, Bus
from gyre.bus.work import micros
from gyre.config import cells
from gyre.records import RoleChanged
from gyre.service import CLEAN_UP_S, Context, until_stopped
from gyre.tasks import end
from services.trainer.claims import Claims
from services.trainer.compute import Compute
from services.trainer.core.facts import Facts, Turn
from services.trainer.roles import RoleSpeaker, follow
from services.trainer.session import Session

log = logging.getLogger(__name__)

TICK_S = 0.05
REJOIN_S = 0.3
"""Between two sessions: time for the scheduler to ask the cell back, or for the core to come up again."""


class SatelliteCell:
    """Role changes; the steps themselves are a Session."""

    def __init__(self, context: Context, bus: Bus, compute: Compute) -> None:
        trainer = context.config.trainer
        self._context = context
        self._bus = bus
        self._compute = compute
        self._device = trainer.device
        self._facts = Facts(compute.cell, not cells.serves(context.config.scheduler, context.cell))
        self._roles = RoleSpeaker(bus, compute.cell, context.clock)
        self._claims = Claims(micros(bus, trainer.claim_s), BlobStore(context.folder.blobs), trainer.claim_s)
        self._session = Session(context, compute, self._claims)
        self._joined: asyncio.Task | None = None

    async def run(self) -> None:
        caught_up = asyncio.Event()
        following = asyncio.create_task(follow(self._bus, (RoleChanged,), self._facts.apply, caught_up))
        await asyncio.wait({following, asyncio.create_task(caught_up.wait())}, return_when=asyncio.FIRST_COMPLETED)
        if following.done():
            return following.result()
        try:
            await until_stopped(self._context, following, self._live(), self._claims.keep_alive())
        finally:
            await self._leave()

    async def _live(self) -> None:
        while True:
            turn, role = self._facts.turn, self._facts.role
            start_s = self._context.clock.monotonic_s()
            if turn is Turn.RELEASE and self._roles.is_new(role):
                await self._leave()
                await self._move("cpu")
                await self._roles.say(role, "released", self._context.clock.monotonic_s() - start_s)
            elif turn is Turn.LOAD and self._roles.is_new(role):
                await self._move(self._device)
                await self._roles.say(role, "training", self._context.clock.monotonic_s() - start_s)
                self._join()
            elif turn is Turn.TRAIN and self._joined is None:  # restarted in the middle of a burst
                await self._move(self._device)
                self._join()
            if self._joined is not None and self._joined.done():
                self._joined.result()
            await asyncio.sleep(TICK_S)

    def _join(self) -> None:
        if self._joined is None:
            self._joined = asyncio.create_task(self._sessions())

    async def _sessions(self) -> None:
        """One session after the other: the core may die, a burst may end, and this cell still be in training."""
        while True:
            await self._session.run()
            await asyncio.sleep(REJOIN_S)

    async def _leave(self) -> None:
        joined, self._joined = self._joined, None
        if joined is not None:
            await self._session.leave()
            await end(joined, again_s=CLEAN_UP_S)

    async def _move(self, device: str) -> None:
        """On the CPU there is nothing to move: both roles share one memory."""
        if self._device != "cpu":
            await self._compute.run(self._compute.policy.move, device)

"""Cell 0, the core: role, steps, bursts, publishes (A2, A7, A8).

    facts ──▶ Facts (fold) ──▶ live(): load, open a step, publish, release      satellites ⇄ CoreService
                  │                        │                                            │
                  └──── events ────────────┴──────────▶ StepShell: decide → effects ◀───┘

`live` is the slow clock (roles and steps), StepShell the fast one (what happens inside a step).
"""

import asyncio
import logging

from gyre.bus import BlobStore, Bus
from gyre.bus.work import micros
from gyre.config import cells
from gyre.records import BatchClosed, BatchExtended, BurstOpened, StepOpened, WeightsPublished
from gyre.service import Context, until_stopped
from services.trainer.claims import Claims
from services.trainer.compute import Compute
from services.trainer.core import events as e
from services.trainer.core.facts import FOLLOWED, Facts, Turn, batch_of
from services.trainer.core.state import Phase
from services.trainer.learner import Learner
from services.trainer.publish import prune_published, publish_file
from services.trainer.roles import RoleSpeaker, follow
from services.trainer.rpc import register
from services.trainer.step_shell import StepShell

log = logging.getLogger(__name__)

TICK_S = 0.05
BOUNDARY_S_MAX = 10.0
"""A core that a burst's first word does not keep waits this long to be asked back, then begins all the same: a step that was opened too early
only waits."""


class CoreCell:
    """The authoritative weights, and all that happens to them."""

    def __init__(self, context: Context, bus: Bus, compute: Compute, learner: Learner) -> None:
        trainer = context.config.trainer
        self._context = context
        self._bus = bus
        self._learner = learner
        self._compute = compute
        self._facts = Facts(compute.cell, not cells.serves(context.config.scheduler, context.cell))
        self._roles = RoleSpeaker(bus, compute.cell, context.clock)
        self._claims = Claims(micros(bus, trainer.claim_s), BlobStore(context.folder.blobs), trainer.claim_s)
        self._shell = StepShell(context, bus, compute, learner, self._claims, self._facts)
        self._training = False
        self._boundary_at_s = 0.0
        """When this process heard of the newest burst."""

    async def run(self) -> None:
        caught_up = asyncio.Event()
        following = asyncio.create_task(follow(self._bus, FOLLOWED, self._on_fact, caught_up))
        await asyncio.wait({following, asyncio.create_task(caught_up.wait())}, return_when=asyncio.FIRST_COMPLETED)
        if following.done():
            return following.result()
        self._learner.check_goes_on(self._facts.updated)
        await self._repeat_lost_facts()
        server = self._context.rpc_server(f"trainer-{self._context.cell}")
        register(server, self._shell.service)
        await server.start()
        try:
            await until_stopped(self._context, following, self._shell.run(), self._live(), self._claims.keep_alive())
        finally:
            await self._shell.drop()
            await server.stop(grace_s=0.2)

    def _on_fact(self, fact) -> None:
        self._facts.apply(fact)
        match fact:
            case BatchExtended():
                self._shell.post(e.Extended(fact.step, tuple(fact.micro_ids)))
            case BatchClosed():
                self._shell.post(e.Closed(fact.step, batch_of(fact)))
            case BurstOpened():
                self._boundary_at_s = self._context.clock.monotonic_s()

    async def _repeat_lost_facts(self) -> None:
        """A crash between checkpoint and fact leaves a step done and not told."""
        updated = self._learner.updated()
        if updated is not None and updated.step not in self._facts.updated:
            await self._bus.publish(updated)

    async def _live(self) -> None:
        while True:
            await self._follow_role()
            if self._shell.phase is Phase.IDLE:
                await self._publish_if_due()
                if self._may_open():
                    await self._open()
            await asyncio.sleep(TICK_S)

    async def _follow_role(self) -> None:
        turn, role = self._facts.turn, self._facts.role
        start_s = self._context.clock.monotonic_s()
        if turn is Turn.RELEASE and self._roles.is_new(role):
            if await self._stand_aside():
                await self._roles.say(role, "released", self._context.clock.monotonic_s() - start_s)
        elif turn is Turn.LOAD and self._roles.is_new(role):
            await self._take_up()
            await self._roles.say(role, "training", self._context.clock.monotonic_s() - start_s)
        elif turn is Turn.TRAIN and not self._training and self._roles.is_new(role):
            await self._take_up()  # restarted while it trained

    async def _take_up(self) -> None:
        await self._compute.run(self._learner.take_up)
        await self._shell.resume()
        self._training = True

    async def _stand_aside(self) -> bool:
        """Leave training between two steps or in the middle of one, which then goes on when the core trains again. False: a reduction or
        an update is under way, or a publish is due; they come first."""
        if not self._training:
            return True
        await self._shell.park()
        is_between = self._shell.phase is Phase.IDLE and not self._facts.is_publish_due(self._learner.version)
        if not self._shell.is_parked and not is_between:
            return False
        await self._shell.rest()
        await self._compute.run(self._learner.set_aside)
        self._training = False
        return True

    def _may_open(self) -> bool:
        """It trains, is not asked back, and the burst of the next step is open on record and wants it: after a publish it waits for that word."""
        burst = self._facts.burst(self._learner.version)
        if burst is None or not self._training or self._facts.turn is Turn.RELEASE:
            return False
        waited_s = self._context.clock.monotonic_s() - self._boundary_at_s
        return self._facts.is_wanted_in(burst) or waited_s > BOUNDARY_S_MAX

    async def _open(self) -> None:
        step = self._learner.version
        if step not in self._facts.opened:
            now_s = self._context.clock.now_s()
            await self._bus.publish(StepOpened(step=step, burst=self._facts.burst_number(step), at_s=now_s))
            self._facts.opened[step] = now_s
        self._facts.forget_before(step)
        await self._shell.open(step)

    async def _publish_if_due(self) -> None:
        """A burst ends with its publish. Satellites stay for the next one until they are asked back."""
        if not self._facts.is_publish_due(self._learner.version):
            return
        folder, now_s = self._context.folder.weights, self._context.clock.now_s()
        fact: WeightsPublished = await self._compute.run(publish_file, self._learner.checkpoint, folder, now_s)
        await self._bus.publish(fact)
        self._facts.published.add(fact.version)
        await self._compute.run(prune_published, folder, self._context.config.trainer.checkpoints_kept)
        log.info("published version %d", fact.version)

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
from gyre.records import BatchClosed, BatchExtended, RoleChanged, StepOpened, WeightsPublished
from gyre.service import Context, until_stopped
from services.trainer.claims import Claims
from services.trainer.compute import Compute
from services.trainer.core import step as s
from services.trainer.core.facts import FOLLOWED, Facts, Turn, batch_of
from services.trainer.core.plan import burst_of, is_published
from services.trainer.learner import Learner
from services.trainer.publish import publish_file
from services.trainer.roles import RoleSpeaker, follow
from services.trainer.rpc import register
from services.trainer.step_shell import StepShell

log = logging.getLogger(__name__)

TICK_S = 0.05
BOUNDARY_QUIET_S = 0.25
"""After a publish the scheduler may ask the core back, after the satellites. When no role change is under way and none was asked for in
this time, the core stays and opens the next burst."""
BOUNDARY_WAIT_S_MAX = 10.0
"""It opens then in any case: a step that turns out to be opened too early is set aside without loss."""


class CoreCell:
    """The authoritative weights, and all that happens to them."""

    def __init__(self, context: Context, bus: Bus, compute: Compute, learner: Learner) -> None:
        trainer = context.config.trainer
        self._context = context
        self._bus = bus
        self._learner = learner
        self._compute = compute
        self._steps_per_publish = context.config.scheduler.steps_per_publish
        self._facts = Facts(cell=compute.cell)
        self._roles = RoleSpeaker(bus, compute.cell, context.clock)
        self._claims = Claims(micros(bus, trainer.claim_s), BlobStore(context.folder.blobs), trainer.claim_s)
        self._shell = StepShell(context, bus, compute, learner, self._claims, self._facts)
        self._training = False
        self._published_at_s: float | None = None
        """When this process ended a burst and stayed in training; None when the next step may be opened at once."""
        self._role_at_s = 0.0

    async def run(self) -> None:
        caught_up = asyncio.Event()
        following = asyncio.create_task(follow(self._bus, FOLLOWED, self._on_fact, caught_up))
        await asyncio.wait({following, asyncio.create_task(caught_up.wait())}, return_when=asyncio.FIRST_COMPLETED)
        if following.done():
            return following.result()
        await self._repeat_lost_facts()
        server = self._context.rpc_server(f"trainer-{self._context.cell}")
        register(server, self._shell.service)
        await server.start()
        try:
            await until_stopped(self._context, following, self._shell.run(), self._live(), self._claims.keep_alive())
        finally:
            await self._shell.stop_claiming()
            await server.stop(grace_s=0.2)

    def _on_fact(self, fact) -> None:
        self._facts.apply(fact)
        match fact:
            case BatchExtended():
                self._shell.post(s.Extended(fact.step, tuple(fact.micro_ids)))
            case BatchClosed():
                self._shell.post(s.Closed(fact.step, batch_of(fact)))
            case RoleChanged():
                self._role_at_s = self._context.clock.monotonic_s()

    async def _repeat_lost_facts(self) -> None:
        """A crash between checkpoint and fact leaves a step done and not told."""
        updated = self._learner.updated()
        if updated is not None and updated.step not in self._facts.updated:
            await self._bus.publish(updated)

    async def _live(self) -> None:
        while True:
            await self._follow_role()
            if self._shell.phase is s.Phase.IDLE:
                await self._publish_if_due()
                if self._may_open():
                    await self._open()
            await asyncio.sleep(TICK_S)

    async def _follow_role(self) -> None:
        turn, role = self._facts.turn, self._facts.role
        if turn is Turn.RELEASE and self._may_release() and self._roles.is_new(role):
            start_s = self._context.clock.monotonic_s()
            await self._shell.set_aside()
            await self._compute.run(self._learner.set_aside)
            self._training = False
            await self._roles.say(role, "released", self._context.clock.monotonic_s() - start_s)
        elif turn is Turn.LOAD and self._roles.is_new(role):
            start_s = self._context.clock.monotonic_s()
            await self._take_up()
            await self._roles.say(role, "training", self._context.clock.monotonic_s() - start_s)
        elif turn is Turn.TRAIN and not self._training and self._roles.is_new(role):
            await self._take_up()  # restarted in the middle of a burst

    async def _take_up(self) -> None:
        await self._compute.run(self._learner.take_up)
        self._shell.start_claiming()
        self._training, self._published_at_s = True, None

    @property
    def _is_mid_burst(self) -> bool:
        """Steps of this burst are done and not published; they are finished first, whatever is asked."""
        return self._learner.version % self._steps_per_publish != 0 and self._learner.version < self._facts.steps

    def _may_release(self) -> bool:
        if not self._training:
            return True
        if self._shell.phase is s.Phase.IDLE:
            return not self._is_mid_burst and not self._is_publish_due()
        return self._shell.phase in (s.Phase.OPEN, s.Phase.SEALED) and not self._is_mid_burst

    def _may_open(self) -> bool:
        if not self._training or self._learner.version >= self._facts.steps:
            return False
        if self._facts.turn is Turn.RELEASE and not self._is_mid_burst:
            return False
        if self._published_at_s is None or self._is_mid_burst:
            return True
        now_s = self._context.clock.monotonic_s()
        quiet_s = now_s - max(self._published_at_s, self._role_at_s)
        is_quiet = quiet_s >= BOUNDARY_QUIET_S and not self._facts.is_moving
        return is_quiet or now_s - self._published_at_s > BOUNDARY_WAIT_S_MAX

    async def _open(self) -> None:
        step = self._learner.version
        if step not in self._facts.opened:
            now_s = self._context.clock.now_s()
            await self._bus.publish(StepOpened(step=step, burst=burst_of(step, self._steps_per_publish), at_s=now_s))
            self._facts.opened[step] = now_s
        self._facts.forget_before(step)
        await self._shell.open(step)

    def _is_publish_due(self) -> bool:
        version = self._learner.version
        return version not in self._facts.published and is_published(
            version, self._steps_per_publish, self._facts.steps
        )

    async def _publish_if_due(self) -> None:
        """A burst ends with its publish; the satellites are told to leave."""
        if not self._is_publish_due():
            return
        folder, now_s = self._context.folder.weights, self._context.clock.now_s()
        fact: WeightsPublished = await self._compute.run(publish_file, self._learner.checkpoint, folder, now_s)
        await self._bus.publish(fact)
        self._facts.published.add(fact.version)
        self._published_at_s = self._context.clock.monotonic_s()
        await self._shell.dissolve()
        log.info("published version %d", fact.version)

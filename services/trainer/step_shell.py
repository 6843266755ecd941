"""Performs what the step machine decides: one queue of events, one reader, effects in order (A7, A8).

Reductions and updates run as tasks of their own and end in an event, so that deaths and claims are heard meanwhile.
"""

import asyncio
import logging
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from gyre.api.trainer.v1 import core_pb2 as pb
from gyre.bus import Bus
from gyre.errors import GaveUp, Unavailable
from gyre.records import AlarmRaised, MicroStep, StepJoined
from gyre.service import Context
from gyre.tasks import end
from gyre.telemetry import span
from services.trainer.begun import Begun
from services.trainer.claimant import Claimant
from services.trainer.claims import Claims
from services.trainer.compute import Compute
from services.trainer.core import events as e
from services.trainer.core import step as s
from services.trainer.core.facts import Facts
from services.trainer.gradient import SampleSeen
from services.trainer.learner import Learner
from services.trainer.optimizer import NotFinite
from services.trainer.report import MicroSeen, refused_samples, trained_samples
from services.trainer.rpc import VERDICTS, CoreService

log = logging.getLogger(__name__)

RETRY_PAUSE_S = 0.3
"""After a reduction that failed: time to hear of the death that made it fail."""
LOST_STEPS_MAX = 3
"""Steps in a row that train nothing because every sample is set aside: then it is the weights, the model or the device, and the rest of the run would
be thrown away as well."""


class StepShell:
    """The step in hand."""

    def __init__(
        self, context: Context, bus: Bus, compute: Compute, learner: Learner, claims: Claims, facts: Facts
    ) -> None:
        claim_s = context.config.trainer.claim_s
        self._context = context
        self._bus = bus
        self._compute = compute
        self._learner = learner
        self._claims = claims
        self._facts = facts
        self._state = s.StepState(step=learner.version, core=compute.cell)
        self._events: asyncio.Queue[tuple[e.Event, asyncio.Future | None]] = asyncio.Queue()
        self._seen: dict[str, MicroSeen] = {}
        self._verdicts: dict[str, asyncio.Future[e.Verdict]] = {}
        self._begun = Begun(context.folder.begun)
        self._claimant = Claimant(claims, compute, self._begun, claim_s, self._ask, self._report)
        self._claiming: asyncio.Task | None = None
        self._tasks: asyncio.TaskGroup | None = None
        self._sum_P: torch.Tensor | None = None
        self._reduce_s = 0.0
        self._group: tuple[tuple[str, ...], Path] | None = None
        """Cells of the last reduction that worked, and where they met: used again until one of them joins or leaves."""
        self.service = CoreService(self.post, self._note, lambda: self._state, compute.cell, claim_s)
        shutil.rmtree(context.folder.reduce, ignore_errors=True)
        context.folder.reduce.mkdir(parents=True)

    @property
    def phase(self) -> s.Phase:
        return self._state.phase

    @property
    def is_parked(self) -> bool:
        return self._state.parked

    def post(self, event: e.Event) -> None:
        self._events.put_nowait((event, None))

    async def open(self, step: int) -> None:
        """Begin the step with what is on record of its batch."""
        await self._post_and_wait(e.Open(self._facts.known(step), self._facts.batch(step)))

    async def park(self) -> None:
        """Leave training in mid-step: gradient and claims are kept for `resume`. Without effect when the step is past that (`is_parked`)."""
        await self._post_and_wait(e.Park())

    async def resume(self) -> None:
        """Train (again)."""
        if self._claiming is None and self._tasks is not None:
            self._claiming = self._tasks.create_task(self._claimant.run())
        await self._post_and_wait(e.Resume())

    async def rest(self) -> None:
        """Finish the micro-step in hand and claim no other."""
        await self._claimant.rest()
        await self._stop_claiming()

    async def drop(self) -> None:
        """As if this process had died: the gradient is gone, others may have the claims at once."""
        await self._stop_claiming()
        await self._compute.forget_gradient()
        await self._claims.hand_back_all()

    async def _stop_claiming(self) -> None:
        claiming, self._claiming = self._claiming, None
        if claiming is not None:
            await end(claiming)
        await self._claims.pause()

    async def run(self) -> None:
        """For ever; an error in any effect is the error of all."""
        async with asyncio.TaskGroup() as self._tasks:
            while True:
                event, done = await self._events.get()
                if isinstance(event, e.Join | e.Leave):
                    self._group = None  # a cell that comes again comes with a new end of the group
                self._state, effects = s.decide(self._state, event)
                for effect in effects:
                    await self._perform(effect)
                if self._state.parked or self._state.phase in (s.Phase.IDLE, s.Phase.UPDATING):
                    self._claimant.may_claim.clear()
                else:
                    self._claimant.may_claim.set()
                if done is not None:
                    done.set_result(None)

    async def _post_and_wait(self, event: e.Event) -> None:
        done = asyncio.get_running_loop().create_future()
        self._events.put_nowait((event, done))
        await done

    async def _perform(self, effect: e.Effect) -> None:
        match effect:
            case e.SendStep():
                await self._send_step(effect)
            case e.Answer():
                self._answer(effect)
            case e.Reduce():
                self._tasks.create_task(self._reduce(effect))
            case e.HandOver():
                self._tasks.create_task(self._take_over(effect))
            case e.Update():
                self._tasks.create_task(self._update(effect))
            case e.Commit():
                await self._commit(effect)
            case e.Expel():
                log.warning("step %d: %s is expelled: %s", self._state.step, effect.cell, effect.reason)
                self.service.cut(effect.cell)
            case e.Release():
                self._group = None
                self.service.send(effect.cell, release=pb.Release())
            case e.Forget():
                await self._begin_anew()

    async def _send_step(self, effect: e.SendStep) -> None:
        snapshot = self._learner.checkpoint
        body = pb.Step(step=self._state.step, snapshot_path=str(snapshot.weights), checksum=snapshot.weights_digest)
        self.service.send(effect.cell, step=body)
        if effect.joined:
            fact = StepJoined(
                step=self._state.step, cell=effect.cell, mid_batch=effect.mid_batch, version=snapshot.version,
                checksum=snapshot.weights_digest, at_s=self._context.clock.now_s(),
            )  # fmt: skip
            await self._bus.publish(fact)

    def _answer(self, effect: e.Answer) -> None:
        if effect.cell != self._compute.cell:
            verdict = pb.Verdict(micro_id=effect.micro_id, answer=VERDICTS[effect.verdict])
            self.service.send(effect.cell, verdict=verdict)
        elif (waiting := self._verdicts.get(effect.micro_id)) is not None and not waiting.done():
            waiting.set_result(effect.verdict)

    async def _ask(self, micro: MicroStep) -> e.Verdict:
        """The core's own claims take the same way as everybody's."""
        waiting = self._verdicts[micro.micro_id] = asyncio.get_running_loop().create_future()
        self.post(e.Claim(self._compute.cell, micro.micro_id, micro.step))
        try:
            return await waiting
        finally:
            self._verdicts.pop(micro.micro_id, None)

    async def _report(self, micro_id: str, seen: dict[str, SampleSeen], compute_s: float) -> None:
        self._note(self._compute.cell, micro_id, seen, compute_s)
        self.post(e.Computed(self._compute.cell, micro_id))

    def _note(self, cell: str, micro_id: str, seen: dict[str, SampleSeen], compute_s: float) -> None:
        self._seen[micro_id] = MicroSeen(cell, seen, compute_s)

    async def _reduce(self, effect: e.Reduce) -> None:
        """One round. A cell's own accumulators are kept until the update, so a round that fails is only repeated."""
        start_s = self._context.clock.monotonic_s()
        if self._group is None or self._group[0] != effect.cells:
            self._group = effect.cells, self._meeting_point(effect.round)
        path = self._group[1]
        for rank, cell in enumerate(effect.cells):
            if cell != self._compute.cell:
                self._send_reduce(cell, effect.round, rank, len(effect.cells), path)
        try:
            self._sum_P = await self._compute.sum_gradients(0, len(effect.cells), path)
            self._reduce_s = self._context.clock.monotonic_s() - start_s
            self.post(e.ReduceEnded(effect.round, True))
        except Unavailable as error:
            log.warning("step %d, round %d: %s", self._state.step, effect.round, error)
            shutil.rmtree(path.parent, ignore_errors=True)
            self._group = None
            await asyncio.sleep(RETRY_PAUSE_S)
            self.post(e.ReduceEnded(effect.round, False))

    def _meeting_point(self, number: int) -> Path:
        """A new one; whoever still looks for the last one sees that its round is over."""
        root = self._context.folder.reduce
        for last in root.iterdir():
            shutil.rmtree(last, ignore_errors=True)
        folder = root / f"s{self._state.step:06d}-r{number}"
        folder.mkdir()
        return folder / "store"

    def _send_reduce(self, cell: str, number: int, rank: int, world_size: int, path: Path) -> None:
        step = self._state.step
        body = pb.Reduce(step=step, round=number, rank=rank, world_size=world_size, store_path=str(path))
        self.service.send(cell, reduce=body)

    async def _take_over(self, effect: e.HandOver) -> None:
        """The gradient of a satellite that leaves in mid-step."""
        self._group = None
        path = self._meeting_point(effect.round)
        try:
            await self._compute.take_over(path, lambda: self._send_reduce(effect.cell, effect.round, 1, 2, path))
            self.post(e.HandOverEnded(effect.cell, True))
        except Unavailable as error:
            log.warning("step %d: what %s had computed is lost: %s", self._state.step, effect.cell, error)
            await asyncio.sleep(RETRY_PAUSE_S)
            self.post(e.HandOverEnded(effect.cell, False))
        finally:
            shutil.rmtree(path.parent, ignore_errors=True)

    async def _update(self, effect: e.Update) -> None:
        """Step, checkpoint, tell; only then is the step committed."""
        seen = {micro: self._seen[micro] for micro in effect.micro_cells if micro in self._seen}
        # Who computed it: a cell that left in mid-step may have given its gradient to the core.
        core = self._compute.cell
        micro_cells = {
            micro: seen[micro].cell if cell == core and micro in seen else cell
            for micro, cell in effect.micro_cells.items()
        }
        by_sample, refused = trained_samples(effect.batch, micro_cells, seen), refused_samples(seen)
        self._check_lost(effect.batch, refused)
        cells = {*micro_cells.values()} or {core}
        timed: dict[str, Any] = {
            "micro_steps": float(len(seen)), "cells": float(len(cells)), "reduce_s": self._reduce_s,
            "compute_s": sum(what.compute_s for what in seen.values()),
        }  # fmt: skip
        links = sorted({sample.traceparent for what in seen.values() for sample in what.samples.values()} - {""})
        step = self._state.step
        with span("train.update", links=links, gyre_step=step, gyre_version=step + 1, gyre_samples=len(by_sample)):
            gradient_P = self._sum_P if effect.micro_cells else None
            try:
                fact = await self._compute.run(
                    self._learner.update, gradient_P, effect.batch, micro_cells, by_sample, timed,
                    self._facts.opened.get(step, 0.0), self._facts.burst_number(step), refused,
                )  # fmt: skip
            except NotFinite as error:
                await self._alarm("gradient", f"{error}; it is computed again", {"step": step})
                self.post(e.Spoiled())
                return
            await self._bus.publish(fact)
        self._facts.apply(fact)
        self._seen.clear()
        self._sum_P, self._reduce_s = None, 0.0
        self.post(e.Updated())
        log.info("step %d: loss %.4f, %d samples", step, fact.metrics["loss"], len(fact.sample_ids))
        if refused:
            await self._alarm("untrainable", _refusals(step, refused), {"step": step, "samples": len(refused)})

    def _check_lost(self, batch: e.Batch, refused: Mapping[str, str]) -> None:
        """Raises GaveUp instead of losing one batch after the other."""
        step, is_lost = self._state.step, bool(refused) and not batch.without(refused).sample_ids
        if is_lost and (steps := self._facts.lost_before(step) + 1) >= LOST_STEPS_MAX:
            raise GaveUp(
                f"{_refusals(step, refused)}: nothing could be trained in {steps} steps in a row. Samples that differ do not all break: look at the "
                f"weights (version {step} is whole on disk), the model directory and the device"
            )

    async def _begin_anew(self) -> None:
        await self.drop()
        self._seen.clear()
        self._sum_P, self._group = None, None
        self._claiming = self._tasks.create_task(self._claimant.run())

    async def _alarm(self, kind: str, message: str, values: Mapping[str, float]) -> None:
        log.error("alarm %s: %s", kind, message)
        await self._bus.publish(
            AlarmRaised(
                kind=kind, message=message, service="trainer", at_s=self._context.clock.now_s(), values=dict(values)
            )
        )

    async def _commit(self, effect: e.Commit) -> None:
        for cell in effect.cells:
            if cell != self._compute.cell:
                self.service.send(cell, commit=pb.Commit(step=effect.step))
        await self._claims.commit(effect.micro_ids)
        self._begun.forget(effect.micro_ids)


def _refusals(step: int, refused: Mapping[str, str]) -> str:
    sample, reason = next(iter(refused.items()))
    return f"step {step}: {len(refused)} samples set aside, the first {sample}: {reason}"

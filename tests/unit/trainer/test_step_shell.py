"""The shell around the step machine, with everything it moves played: a sum that is not finite is computed again from nothing (A2, A8)."""

import asyncio
from types import SimpleNamespace

import pytest
import torch

from gyre.clock import ManualClock
from gyre.errors import GaveUp
from gyre.records import AlarmRaised, BatchExtended, MicroStep, StepUpdated
from gyre.service import gyre_error
from services.trainer.core.events import Batch
from services.trainer.core.facts import Facts
from services.trainer.core.state import Phase
from services.trainer.core.step import SPOILED_MAX
from services.trainer.gradient import SampleSeen
from services.trainer.optimizer import NotFinite
from services.trainer.step_shell import StepShell
from tests.support import until

MICROS = [MicroStep(micro_id=name, step=0, group_id="g", rows=[], tokens=1, at_s=0.0) for name in ("m0", "m1")]


class Played:
    """Claims, compute, learner and bus of a core that is alone; the learner finds the first `bad` sums not finite."""

    cell = "cell-0"
    version = 0

    def __init__(self, bad: int) -> None:
        self.bad = bad
        self.queue = list(MICROS)
        self.held: dict[str, MicroStep] = {}
        self.computed: list[str] = []
        self.accumulated: list[str] = []
        self.applied: list[list[str]] = []
        self.published: list = []

    async def take(self) -> MicroStep | None:
        await asyncio.sleep(0)
        if not self.queue:
            return None
        micro = self.queue.pop(0)
        self.held[micro.micro_id] = micro
        return micro

    def with_rows(self, micro: MicroStep) -> MicroStep:
        return micro

    async def hand_back(self, micro_id: str, delay_s: float = 0.0) -> None:
        self.queue.append(self.held.pop(micro_id))

    async def hand_back_all(self) -> None:
        for name in list(self.held):
            await self.hand_back(name)

    async def commit(self, micro_ids) -> None:
        for name in micro_ids:
            del self.held[name]

    async def pause(self) -> None: ...

    async def micro_step(self, micro: MicroStep):
        self.computed.append(micro.micro_id)
        self.accumulated.append(micro.micro_id)
        return {f"{micro.micro_id}-e0-a1": SampleSeen({"loss": 1.0})}, 0.1

    async def sum_gradients(self, *_: object) -> torch.Tensor:
        return torch.ones(1)

    async def forget_gradient(self) -> None:
        self.accumulated.clear()

    async def run(self, function, *arguments):
        return function(*arguments)

    def update(self, _gradient_P, batch: Batch, micro_cells, *_: object) -> StepUpdated:
        if self.bad > 0:
            self.bad -= 1
            raise NotFinite("step 0: the sum of gradients is not finite; nothing of it is applied")
        self.applied.append(sorted(self.accumulated))
        return StepUpdated(
            step=0, version=1, burst=0, sample_ids=list(batch.sample_ids), micro_cells=dict(micro_cells), metrics={"loss": 0.0},
            opened_at_s=0.0, at_s=0.0,
        )  # fmt: skip

    async def publish(self, fact) -> None:
        self.published.append(fact)


async def begun(tmp_path, played: Played) -> tuple[StepShell, asyncio.Task]:
    """A shell with step 0 open and its batch whole."""
    facts = Facts("cell-0")
    names = [micro.micro_id for micro in MICROS]
    facts.apply(BatchExtended(step=0, group_id="g", sample_ids=[], micro_ids=names, turns=1, turns_total=1, at_s=0.0))
    facts._closed[0] = Batch(tuple(names), tuple(f"{name}-e0-a1" for name in names), 2)
    context = SimpleNamespace(
        config=SimpleNamespace(trainer=SimpleNamespace(claim_s=1.0)), folder=SimpleNamespace(reduce=tmp_path / "reduce", begun=tmp_path / "begun"),
        clock=ManualClock(5.0),
    )  # fmt: skip
    shell = StepShell(context, played, played, played, played, facts)
    running = asyncio.create_task(shell.run())
    await asyncio.sleep(0)
    await shell.resume()
    await shell.open(0)
    return shell, running


async def test_a_sum_that_is_not_finite_is_computed_again_from_nothing(tmp_path):
    """Twice spoilt: each time an alarm, empty accumulators, claims that go back and come again; then both micro-steps are in the gradient once,
    and acknowledged."""
    played = Played(bad=SPOILED_MAX - 1)
    shell, running = await begun(tmp_path, played)
    await until(lambda: shell.phase is Phase.IDLE and played.applied)
    assert played.applied == [["m0", "m1"]] and not played.held and not played.queue
    assert sorted(played.computed) == sorted(SPOILED_MAX * ["m0", "m1"])
    assert [fact.kind for fact in played.published if isinstance(fact, AlarmRaised)] == ["gradient"] * (SPOILED_MAX - 1)
    assert [fact.step for fact in played.published if isinstance(fact, StepUpdated)] == [0]
    running.cancel()
    await asyncio.wait([running])


async def test_a_sum_that_never_becomes_finite_ends_the_process(tmp_path):
    played = Played(bad=100)
    _, running = await begun(tmp_path, played)
    await asyncio.wait([running])
    with pytest.raises(ExceptionGroup) as error:
        running.result()
    assert isinstance(gyre_error(error.value), GaveUp) and not played.applied

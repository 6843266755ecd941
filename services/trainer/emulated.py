"""`python -m services.trainer.emulated --run DIR`: the trainers of all cells of a dry run in one process, which only wait.

Steps, claims, joins, reductions, checkpoints and publishes are the real ones, over tensors that hold nothing; only the computing is
replaced, by the time it would take.
"""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from gyre.clock import Clock
from gyre.config import Config
from gyre.config.cells import training
from gyre.ids import cell_id
from gyre.records import MicroStep
from gyre.run_folder import RunFolder
from gyre.service import Context, main
from services.trainer.compute import Compute
from services.trainer.core_cell import CoreCell
from services.trainer.gradient import SampleSeen
from services.trainer.learner import Learner
from services.trainer.satellite_cell import SatelliteCell

CORE = 0
AWAY = "cpu"
"""Where training state lies while the cell serves rollout; `trainer.device` names another place, so that moving is a move."""


class EmulatedPolicy:
    """Weights without a number in them. Moving them takes the time of a role change into training."""

    def __init__(self, into_training_s: float) -> None:
        """`into_training_s`: scaled."""
        self._into_training_s = into_training_s

    def tensors(self) -> dict[str, torch.Tensor]:
        return {}

    def load(self, tensors: dict[str, torch.Tensor]) -> None:
        pass

    def move(self, device: str) -> None:
        if device != AWAY:
            time.sleep(self._into_training_s)


class EmulatedOptimizer:
    """The interface of `Optimizer`."""

    def step(self, gradient_P: torch.Tensor, divisor: float, step: int, lr_factor: float = 1.0) -> dict[str, float]:
        return {}

    def zero(self) -> None:
        pass

    def state(self) -> dict[str, Any]:
        return {}

    def load(self, state: dict[str, Any]) -> None:
        pass

    def move(self, device: str) -> None:
        pass


class EmulatedLearner(Learner):
    """Real checkpoints, facts and versions."""

    def _make_optimizer(self, policy: EmulatedPolicy, config: Config) -> EmulatedOptimizer:
        return EmulatedOptimizer()


class EmulatedCompute(Compute):
    """Gradients that take as long as configured."""

    def __init__(self, cell: str, config: Config, clock: Clock) -> None:
        given = config.emulation
        super().__init__(cell, EmulatedPolicy(given.into_training_s / given.time_scale), config.trainer, clock)
        self._sample_s = given.group_training_s / config.scheduler.group_size / given.time_scale

    async def micro_step(self, micro: MicroStep) -> tuple[dict[str, SampleSeen], float]:
        seen = {row.sample_id: SampleSeen(traceparent=row.traceparent) for row in micro.rows}
        compute_s = self._sample_s * len(seen)
        await asyncio.sleep(compute_s)
        return seen, compute_s

    async def sum_gradients(self, rank: int, world_size: int, store_path: Path) -> torch.Tensor:
        return torch.ones(1)

    async def take_over(self, store_path: Path, begin: Callable[[], None]) -> None:
        begin()

    async def forget_gradient(self) -> None:
        """There is none."""


async def run(context: Context) -> None:
    """The trainer of every cell, emulated."""
    async with asyncio.TaskGroup() as cells:
        for index in training(context.config.scheduler):
            of_cell = Context(f"trainer-{index}", context.folder, index, context.arguments)
            of_cell.stopping = context.stopping
            cells.create_task(_cell(of_cell, context.folder, context.config))


async def _cell(context: Context, folder: RunFolder, config: Config) -> None:
    compute = EmulatedCompute(cell_id(context.cell), config, context.clock)
    bus = await context.bus("trainer")
    try:
        if context.cell == CORE:
            learner = await compute.run(EmulatedLearner, folder, config, compute.policy, context.clock)
            await CoreCell(context, bus, compute, learner).run()
        else:
            await SatelliteCell(context, bus, compute).run()
    finally:
        compute.close()
        await bus.close()


if __name__ == "__main__":
    main("trainer.emulated", run)

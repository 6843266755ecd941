"""The one thread in which a cell does all its tensor work, so that heartbeats go on meanwhile and no two computations meet."""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch

from gyre.clock import Clock
from gyre.config import TrainerConfig
from gyre.records import MicroStep
from gyre.telemetry import emit_span
from gyre.token_log import TokenLog
from services.trainer.gradient import SampleSeen, accumulate
from services.trainer.model import Policy
from services.trainer.optimizer import flat_gradient, set_gradient
from services.trainer.reduce import Reducer
from services.trainer.tokens import Collected

log = logging.getLogger(__name__)


class Compute:
    """A policy, its gradient accumulators, and this cell's end of the reduction."""

    def __init__(
        self, cell: str, policy: Policy, config: TrainerConfig, clock: Clock, tokens: TokenLog | None = None
    ) -> None:
        self.cell = cell
        self.policy = policy
        self._config = config
        self._clock = clock
        self._tokens = tokens
        self._reducer = Reducer()
        torch.set_num_threads(config.threads)
        self._thread = ThreadPoolExecutor(1, "compute", initializer=torch.set_num_threads, initargs=(config.threads,))

    async def run(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """`function(*arguments)` after all that was asked for before."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, function, *arguments)

    async def micro_step(self, micro: MicroStep) -> tuple[dict[str, SampleSeen], float]:
        """Add a micro-step's gradient; returns what was seen of each sample, and the seconds it took."""
        start_s = self._clock.now_s()
        # a replay of the elite store is another gradient of a sample that has its own
        collected = Collected() if self._tokens is not None and not micro.is_elite else None
        seen = await self.run(accumulate, self.policy, micro, self._config, collected)
        end_s = self._clock.now_s()
        if collected is not None:
            await self.run(self._put, collected, micro.step)
        links = [sample.traceparent for sample in seen.values()]
        about = {"gyre_step": micro.step, "gyre_micro_step": micro.micro_id, "gyre_cell": self.cell}
        emit_span("train.micro_step", start_s, end_s, links=links, gyre_tokens=micro.tokens, **about)
        for sample_id, sample in seen.items():
            if sample.refused:
                log.error("%s: %s is set aside: %s", micro.micro_id, sample_id, sample.refused)
            its = {"traceparent": sample.traceparent, "gyre_sample": sample_id, **about}
            emit_span("train.wait_for_cell", min(micro.at_s, start_s), start_s, **its)
            emit_span("train.gradient", start_s, end_s, **its, gyre_targets=sample.sums.get("targets", 0.0))
        return seen, end_s - start_s

    def _put(self, collected: Collected, step: int) -> None:
        """Evidence, not state: training goes on where it cannot be written."""
        try:
            self._tokens.put(collected.seen(step))
        except OSError as error:
            log.warning("the token log is not written any more: %s", error)
            self._tokens = None

    async def sum_gradients(self, rank: int, world_size: int, store_path: Path) -> torch.Tensor:
        """[P] sum over the cells that take part; this cell's own accumulators stay as they are. Raises Unavailable."""
        return await self.run(
            lambda: self._reducer.sum(flat_gradient(self.policy.parameters), rank, world_size, store_path)
        )

    async def take_over(self, store_path: Path, begin: Callable[[], None]) -> None:
        """Add the gradient of a cell that leaves to this one's accumulators. `begin` is called (in the loop) when this end is at the meeting
        point, so that the other does not wait there for a micro-step to end. Raises Unavailable; the accumulators are then as before."""
        loop = asyncio.get_running_loop()

        def add() -> None:
            loop.call_soon_threadsafe(begin)
            parameters = self.policy.parameters
            set_gradient(parameters, self._reducer.sum(flat_gradient(parameters), 0, 2, store_path))

        await self.run(add)

    async def forget_gradient(self) -> None:
        """Free the accumulators, after whatever is being computed."""
        await self.run(self.policy.model.zero_grad, True)

    async def close_group(self) -> None:
        await self.run(self._reducer.close)

    def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)

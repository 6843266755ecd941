"""Real bus, scheduler, gateway, cell and environment process; the test submits tasks and reads endings."""

import asyncio
import itertools
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from gyre import records as r
from gyre.api.scheduler.v1 import scheduler_pb2 as pb
from gyre.api.scheduler.v1.scheduler_pb2_grpc import SchedulerServiceStub
from gyre.bus import streams
from gyre.rpc import open_channel
from tests.integration.rollout.driver import EnvironmentDouble
from tests.support import WAIT_S, TestRun

SETTINGS = {
    "scheduler": {"cells": 1},
    "rollout": {
        "lease_s": 8.0, "context_max": 512, "slots": 16, "attempts_max": 2,
        "request_bytes_max": 256 * 1024, "observation_bytes_max": 256,
    },
    "tasks": {"context_tokens_max": 512},
}  # fmt: skip
FACTS = (r.CallRecorded, r.ExecutionEnded, r.ExecutionLeased, r.ExecutionStarted, r.RoleChanged)
ENVIRONMENT = "tests.integration.badinput.environment"


class System:
    """One for all tests of a module."""

    def __init__(self, folder: Path, model_dir: Path) -> None:
        self.run = TestRun(folder, SETTINGS | {"model": {"path": str(model_dir)}})
        self.facts = self.run.facts
        self._serials = itertools.count(1)

    async def __aenter__(self) -> "System":
        await self.run.__aenter__()
        try:
            await self._start()
        except BaseException:
            await self.run.__aexit__()
            raise
        return self

    async def _start(self) -> None:
        _, self.gateway, _ = await asyncio.gather(
            self.run.start("services.scheduler", endpoint="scheduler"),
            self.run.start("services.rollout", endpoint="rollout"),
            self.run.start("services.rollout.cell", "--cell", "0", endpoint="cell-0"),
        )
        self._claimant = await self.run.bus("gateway")
        self.run.listen(FACTS)
        self.trainer = await self.run.bus("trainer")
        self._channel = open_channel(self.run.folder.endpoint("scheduler"), self.run.service_key)
        self._scheduler = SchedulerServiceStub(self._channel)
        role = {"cell": "cell-0", "change": 0, "target": "rollout", "phase": "released", "at_s": time.time()}
        await self.fact(lambda f: isinstance(f, r.RoleChanged) and f.phase == "requested")
        await self.trainer.publish(r.RoleChanged(**role))
        await self.fact(lambda f: isinstance(f, r.RoleChanged) and f.phase == "serving")

    async def __aexit__(self, *_: object) -> None:
        await self._channel.close(None)
        await self.run.__aexit__()

    async def start_environment(self, *arguments: str) -> asyncio.subprocess.Process:
        return await self.start_module(ENVIRONMENT, *arguments)

    async def start_module(self, module: str, *arguments: str) -> asyncio.subprocess.Process:
        """An environment process, attached by command-line options."""
        address, key = self.run.folder.endpoint("rollout"), self.run.environment_key
        return await self.run.start(module, "--address", address, "--key", key, "--slots", "64", *arguments)

    async def attach(self, slots: int = 8) -> EnvironmentDouble:
        """A foreign client of the test's own, under a name nobody else has."""
        name = f"foreign-{next(self._serials)}"
        double = EnvironmentDouble(self.run, f"instance-of-{name}", name, slots)
        await double.attach()
        return double

    async def submit(self, mode: str, environment: str = "wayward", wall_s: float = 600, turns_max: int = 4) -> str:
        """The execution's id."""
        limits = pb.Limits(wall_s=wall_s, turns_max=turns_max, context_tokens_max=512, output_tokens_max=16)
        task = pb.Task(
            task_id=f"t{next(self._serials)}", task_type="bad", environment=environment, seed=1, purpose="evaluation",
            payload_json=json.dumps({"mode": mode}), group_size=1, temperature=1.0, top_p=1.0, limits=limits,
        )  # fmt: skip
        reply = await self._scheduler.SubmitTasks(pb.SubmitTasksRequest(tasks=[task]), timeout=WAIT_S)
        return f"{reply.group_ids[0]}-e0"

    async def begin(self, double: EnvironmentDouble, **limits: Any) -> tuple[str, str, int]:
        """An execution under way at a foreign client: (execution, key, attempt)."""
        execution = await self.submit("", double.name, **limits)
        return execution, *(await double.begin(execution))

    async def ending(self, execution: str) -> r.ExecutionEnded:
        return await self.fact(lambda f: isinstance(f, r.ExecutionEnded) and f.execution_id == execution)

    async def fact(self, fits: Callable[[Any], bool]) -> Any:
        """The first fact that fits, now or soon."""

        def found() -> Any:
            return next((fact for fact in self.facts if fits(fact)), None)

        found.__wrapped__ = fits
        return await self.run.until(found)

    def endings(self) -> list[r.ExecutionEnded]:
        return self.run.of(r.ExecutionEnded)

    async def no_lease_left(self) -> None:
        """Wait until every task is delivered and acknowledged, which is a moment after its ending is on record."""

        async def is_empty() -> bool:
            info = await self._claimant.js.consumer_info(streams.TASKS, f"{self.run.config.run.name}-tasks")
            return (info.num_ack_pending, info.num_pending) == (0, 0)

        await self.run.until(is_empty)

    def memory_bytes(self) -> int:
        """Resident memory of the gateway."""
        return psutil.Process(self.gateway.pid).memory_info().rss

    def log(self, module: str) -> str:
        return (self.run.folder.logs / f"{module}.log").read_text(errors="replace")

"""A run around a real harness: real bus, gateway process, two cells with scripted engines, and the environment that runs the harness.

The test speaks for scheduler and trainer. Calls take the way they take in production: task → lease → HarnessEnvironment → harness → gateway → cell.
"""

import asyncio
import itertools
import json
import time
from pathlib import Path
from typing import Any

from gyre.env import Task
from gyre.env.harness import HarnessEnvironment
from gyre.env.serving import serve_async
from gyre.records import (
    AlarmRaised,
    CallRecorded,
    ExecutionCommanded,
    ExecutionEnded,
    ExecutionLeased,
    ExecutionResumed,
    ExecutionStarted,
    ExecutionSuspended,
    Limits,
    RoleChanged,
    TaskDispatched,
    TaskSpec,
    WeightsPublished,
)
from gyre.tasks import end
from tests.support import TestRun

CONTEXT_MAX = 1_000_000
SETTINGS = {
    "scheduler": {"cells": 2},
    "rollout": {"context_max": CONTEXT_MAX, "slots": 8, "lease_s": 10.0, "request_bytes_max": 64 * 2**20},
    "tasks": {"context_tokens_max": CONTEXT_MAX},
}  # fmt: skip
KINDS = (
    AlarmRaised, CallRecorded, ExecutionEnded, ExecutionLeased, ExecutionResumed, ExecutionStarted, ExecutionSuspended, RoleChanged,
)  # fmt: skip
ENVIRONMENT = "harness"
HARNESS_S = 240.0
"""A harness of these tests works for some seconds on two quiet cores."""


class Stack:
    """`async with Stack(folder, model_dir, script, environment) as stack: ended = await stack.run()`"""

    def __init__(
        self, root: Path, model_dir: Path, script: list[dict[str, Any]], environment: type[HarnessEnvironment] | None
    ) -> None:
        """Without an `environment` the test attaches a process of its own."""
        self.test = TestRun(root, SETTINGS | {"model": {"path": str(model_dir)}})
        (root / "script.json").write_text(json.dumps(script))
        self._notes = root / "notes.jsonl"
        self._notes.touch()
        self._environment = environment
        self.worlds: list[HarnessEnvironment] = []
        """Those that were made, the newest last."""
        self._changes = {"cell-0": 0, "cell-1": 0}
        self._executions = itertools.count()
        self._serving: list[asyncio.Task] = []

    async def __aenter__(self) -> "Stack":
        await self.test.__aenter__()
        try:
            await self._begin()
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def _begin(self) -> None:
        test = self.test
        self._scheduler, self._trainer = await test.bus("scheduler"), await test.bus("trainer")
        test.listen(KINDS)
        cells = test.start("tests.harness.cells", endpoint="cell-1")
        self.gateway, _ = await asyncio.gather(test.start("services.rollout", endpoint="rollout"), cells)
        for cell, change in self._changes.items():
            await self._to_rollout(cell, change)
        if self._environment is not None:
            address = test.folder.endpoint("rollout")
            serving = serve_async(self._made, ENVIRONMENT, 2, address, test.environment_key)
            self._serving = [asyncio.create_task(serving)]

    async def __aexit__(self, *_: object) -> None:
        await end(*self._serving, again_s=30.0)
        await self.test.__aexit__()

    def _made(self, task: Task) -> HarnessEnvironment:
        self.worlds.append(self._environment(task))
        return self.worlds[-1]

    async def dispatch(
        self, context_tokens_max: int = CONTEXT_MAX, turns_max: int = 60, environment: str = ENVIRONMENT
    ) -> str:
        """The execution's id."""
        name = f"g{next(self._executions):06d}-e0"
        limits = Limits(
            wall_s=HARNESS_S, turns_max=turns_max, context_tokens_max=context_tokens_max, output_tokens_max=4000
        )
        task = TaskSpec(task_id=name, task_type="harness", environment=environment, seed=1, limits=limits)
        dispatched = TaskDispatched(
            execution_id=name, group_id=name.partition("-")[0], member=0, task=task, tier="all", policy_version=0, seed=7,
            dispatched_at_s=time.time(),
        )  # fmt: skip
        await self._scheduler.publish(dispatched)
        return name

    async def ended(self, name: str) -> ExecutionEnded:
        found = await self.test.until(lambda: self.test.of(ExecutionEnded, execution_id=name), HARNESS_S + 60)
        return found[0]

    async def run(self, **limits: int) -> ExecutionEnded:
        return await self.ended(await self.dispatch(**limits))

    def records(self, name: str) -> list[CallRecorded]:
        """In the order of their calls."""
        return sorted(self.test.of(CallRecorded, execution_id=name), key=lambda record: record.call_index)

    def notes(self) -> list[dict[str, Any]]:
        """What the cells noted; the last line may still be under way."""
        return [json.loads(line) for line in self._notes.read_text().splitlines(keepends=True) if line.endswith("\n")]

    async def held(self, count: int) -> dict[str, Any]:
        """The newest of `count` calls that were held half-way."""

        def newest() -> dict[str, Any] | None:
            held = [note for note in self.notes() if note["event"] == "held"]
            return held[count - 1] if len(held) >= count else None

        return await self.test.until(newest, HARNESS_S)

    async def to_training(self, cell: str) -> RoleChanged:
        """The cell is taken for training; what its rollout process and the gateway said when it was empty."""
        self._changes[cell] += 1
        change = self._changes[cell]
        await self._role(self._scheduler, cell, change, "training", "requested")
        found = await self.test.until(lambda: self.test.of(RoleChanged, cell=cell, change=change, phase="drained"))
        await self.test.until(lambda: self.test.of(RoleChanged, cell=cell, change=change, phase="unloaded"))
        return found[0]

    async def to_rollout(self, cell: str) -> None:
        """The cell comes back from training."""
        self._changes[cell] += 1
        await self._to_rollout(cell, self._changes[cell])

    async def command(self, name: str, ordinal: int, word: Any, fact: type) -> None:
        """The scheduler's word to an execution; returns when `fact` says that it is done."""
        commanded = ExecutionCommanded(
            execution_id=name, group_id=name.partition("-")[0], ordinal=ordinal, command=word, by="test", reason="because", at_s=time.time(),
        )  # fmt: skip
        await self._scheduler.publish(commanded)
        await self.test.until(lambda: self.test.of(fact, execution_id=name))

    async def publish_weights(self, version: int) -> None:
        weights = WeightsPublished(version=version, path="none", checksum="", bytes=0, at_s=time.time())
        await self._trainer.publish(weights)

    async def kill_gateway(self) -> None:
        """kill -9, and another one in its place."""
        self.gateway.kill()
        await self.gateway.wait()
        self.gateway = await self.test.start("services.rollout", endpoint="rollout")

    async def _to_rollout(self, cell: str, change: int) -> None:
        await self._role(self._scheduler, cell, change, "rollout", "requested")
        await self._role(self._trainer, cell, change, "rollout", "released")
        await self.test.until(lambda: self.test.of(RoleChanged, cell=cell, change=change, phase="serving"))

    @staticmethod
    async def _role(bus: Any, cell: str, change: int, target: Any, phase: str) -> None:
        await bus.publish(RoleChanged(cell=cell, change=change, target=target, phase=phase, at_s=time.time()))

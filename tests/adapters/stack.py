"""A run around an environment process of any kind: real bus, real gateway process, a scripted cell. The test speaks for the scheduler."""

import asyncio
import itertools
import json
import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from examples.repair.model import make_tokenizer
from gyre.records import (
    CallRecorded,
    ExecutionEnded,
    ExecutionLeased,
    ExecutionStarted,
    Limits,
    RoleChanged,
    TaskDispatched,
    TaskSpec,
)
from tests.support import ROOT, TestRun

SETTINGS = {
    "scheduler": {"cells": 1},
    "rollout": {"context_max": 8192, "slots": 8, "lease_s": 20.0},
    "tasks": {"context_tokens_max": 8192},
}
KINDS = (CallRecorded, ExecutionEnded, ExecutionLeased, ExecutionStarted, RoleChanged)


def make_model(folder: Path) -> Path:
    """A model without weights: a tokenizer and its chat template, which is all that a scripted cell needs."""
    texts = ['<tool_call>{"name": "guess", "arguments": {"number": 3}}</tool_call>', "Guess my number from 0 to 9."]
    make_tokenizer(iter(texts * 50), 512).save_pretrained(folder)
    return folder


def tool_text(name: str, /, **arguments: Any) -> str:
    """A tool call as the model family says it."""
    said = json.dumps({"name": name, "arguments": arguments})
    return f"<tool_call>\n{said}\n</tool_call>"


class Stack:
    """`script`: for the scripted engine; `command`: the environment process, which is given GYRE_ROLLOUT_ADDRESS and its key."""

    def __init__(self, root: Path, model_dir: Path, script: list[dict], command: Sequence[str], name: str) -> None:
        self.run = TestRun(root, SETTINGS | {"model": {"path": str(model_dir)}})
        self._root, self._command, self._name = root, list(command), name
        (root / "script.json").write_text(json.dumps(script))
        self._serials = itertools.count()

    async def __aenter__(self) -> "Stack":
        await self.run.__aenter__()
        try:
            await self._start()
        except BaseException:
            await self.run.__aexit__()
            raise
        return self

    async def _start(self) -> None:
        run = self.run
        self._scheduler, self._trainer = await run.bus("scheduler"), await run.bus("trainer")
        run.listen(KINDS)
        cell = run.start("tests.harness.cells", endpoint="cell-0")
        self._gateway, _ = await asyncio.gather(run.start("services.rollout", endpoint="rollout"), cell)
        for bus, phase in ((self._scheduler, "requested"), (self._trainer, "released")):
            await bus.publish(RoleChanged(cell="cell-0", change=0, target="rollout", phase=phase, at_s=time.time()))
        await run.until(lambda: run.of(RoleChanged, cell="cell-0", change=0, phase="serving"))
        await self.start_environment()

    async def __aexit__(self, *_: object) -> None:
        if self.process.returncode is None:
            self.process.kill()
            await self.process.wait()
        await self.run.__aexit__()

    async def start_environment(self) -> None:
        variables = {
            "GYRE_ROLLOUT_ADDRESS": self.run.folder.endpoint("rollout"), "GYRE_ENVIRONMENT_KEY": self.run.environment_key,
            "GYRE_ENVIRONMENT_SLOTS": "4",
        }  # fmt: skip
        with (self.run.folder.logs / "environment.log").open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                *self._command, cwd=ROOT, stdout=log, stderr=log, env=os.environ | variables
            )

    async def restart_gateway(self) -> None:
        """kill -9, and another one in its place."""
        self._gateway.kill()
        await self._gateway.wait()
        self._gateway = await self.run.start("services.rollout", endpoint="rollout")

    async def stop_environment(self) -> int:
        """SIGTERM, and its exit status."""
        self.process.send_signal(signal.SIGTERM)
        return await asyncio.wait_for(self.process.wait(), 60)

    async def dispatch(self, seed: int = 1, wall_s: float = 120.0, turns_max: int = 8, **payload: Any) -> str:
        name = f"g{next(self._serials):06d}-e0"
        limits = Limits(wall_s=wall_s, turns_max=turns_max, context_tokens_max=8192, output_tokens_max=500)
        task = TaskSpec(
            task_id=name, task_type="adapted", environment=self._name, seed=seed, limits=limits, payload=payload
        )  # fmt: skip
        dispatched = TaskDispatched(
            execution_id=name, group_id=name.partition("-")[0], member=0, task=task, tier="all", policy_version=0, seed=seed,
            dispatched_at_s=time.time(),
        )  # fmt: skip
        await self._scheduler.publish(dispatched)
        return name

    async def ended(self, name: str) -> ExecutionEnded:
        def looked() -> list[ExecutionEnded]:
            status = self.process.returncode
            assert status is None, f"the environment ended with {status}: {self.log()[-3000:]}"
            return self.run.of(ExecutionEnded, execution_id=name)

        return (await self.run.until(looked, 180.0))[0]

    def records(self, name: str) -> list[CallRecorded]:
        return sorted(self.run.of(CallRecorded, execution_id=name), key=lambda record: record.call_index)

    def log(self) -> str:
        return (self.run.folder.logs / "environment.log").read_text(errors="replace")

"""The emulated environment: a world without content. It says how much work each call is, waits where environments wait, and ends.

`python -m gyre.cli.dryrun.environment`, started inside an emulated run, whose configuration it reads.
"""

import asyncio
import itertools
import os
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from gyre.cli.dryrun.workload import outcome, works_s
from gyre.config import Config
from gyre.env import Environment, Evidence, Score, StepResult, Task, ToolCall, serve
from gyre.run_folder import RunFolder

NAME = "emulated"
TOOLS = [
    {
        "type": "function",
        "function": {"name": "work", "description": "Go on.", "parameters": {"type": "object", "properties": {}}},
    }
]


def tasks(split: str, count: int, seed: int) -> Iterator[Task]:
    """The source of an emulated run: tasks that are nothing but a seed."""
    for index in range(count):
        yield Task(task_id=f"{split}-{index}", task_type=NAME, seed=(seed << 20) + index)


class EmulatedEnvironment(Environment):
    """One execution: `calls` model calls of equal work, and as many waits."""

    name = NAME
    shares_loop = True

    def __init__(self, task: Task, config: Config, member: int) -> None:
        super().__init__(task)
        given = config.emulation
        self._member = member
        self._calls = given.calls
        work_s = works_s(given, task.seed, config.scheduler.group_size)[member]
        self._call_s = work_s / given.calls
        self._wait_s = self._call_s * given.environment_share / (1.0 - given.environment_share) / given.time_scale
        self._done = 0

    def tools(self) -> list[dict]:
        return TOOLS

    async def reset(self) -> list[dict]:
        return [{"role": "user", "content": self._next()}]

    async def step(self, call: ToolCall) -> StepResult:
        self._done += 1
        await asyncio.sleep(self._wait_s)
        return StepResult(content=self._next(), done=self._done >= self._calls)

    async def score(self) -> Score:
        return Score(outcome=outcome(self.task.seed, self._member))

    async def evidence(self) -> Evidence:
        return Evidence(image_digest="emulated")

    def _next(self) -> str:
        return f"work={self._call_s:.3f}s"


class Members:
    """Which member of its group an instance is: a task does not say, so they are counted as they come."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._came: dict[str, Iterator[int]] = defaultdict(itertools.count)

    def __call__(self, task: Task) -> EmulatedEnvironment:
        member = next(self._came[task.task_id]) % self._config.scheduler.group_size
        return EmulatedEnvironment(task, self._config, member)


if __name__ == "__main__":
    serve(Members(RunFolder(Path(os.environ["GYRE_RUN"])).config()[0]), NAME)

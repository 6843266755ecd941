"""A world that takes a moment for each act and then tosses a coin: groups have gradients, and durations differ."""

import asyncio
import random
from collections.abc import Iterator
from typing import Any

from gyre.env import Environment, Evidence, Score, StepResult, Task, ToolCall, serve

ACT = {"type": "function", "function": {"name": "act", "parameters": {"type": "object", "properties": {}}}}
TURNS = (2, 4)
ACT_S = (0.05, 0.4)


class Coin(Environment):
    """Ends after two to four acts; the model of these tests does nothing but act."""

    name = "coin"

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self._left = random.randint(*TURNS)

    def tools(self) -> list[dict[str, Any]]:
        return [ACT]

    def reset(self) -> list[dict[str, Any]]:
        return [{"role": "user", "content": "go"}]

    def evidence(self) -> Evidence:
        return Evidence(image_digest="sha256:0")

    async def step(self, call: ToolCall) -> StepResult:
        await asyncio.sleep(random.uniform(*ACT_S))
        self._left -= 1
        return StepResult(content="done", done=self._left == 0)

    def score(self) -> Score:
        return Score(outcome=float(random.random() < 0.5))


def tasks(split: str, count: int, seed: int) -> Iterator[Task]:
    for index in range(count):
        yield Task(task_id=f"{split}-{seed}-{index}", task_type="coin", seed=seed + index)


if __name__ == "__main__":
    serve(Coin, name="coin")

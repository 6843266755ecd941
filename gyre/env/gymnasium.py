"""Any Gymnasium environment with text or small observations, as an environment for language models.

One tool, `act(action)`: for a discrete space one of `actions` (names in the order of the space's numbers), for others what gyre.env.spaces makes of
them. `terminated` is the world's own end, `truncated` its limit: the execution then ends as timed_out(turns) and is judged like any other. The
outcome is judged from the rewards and the state, never from what the model says.

    class Lake(GymnasiumEnvironment):
        name, env_id = "frozen-lake", "FrozenLake-v1"
        actions = ("left", "down", "right", "up")
"""

import re
from collections.abc import Iterator
from importlib.metadata import version
from typing import Any, ClassVar

import gymnasium

from gyre.env import spaces
from gyre.env.environment import Environment, Evidence, Score, StepResult, Task, ToolCall
from gyre.env.shapes import observation_text

_HIGHLIGHT = re.compile("\x1b\\[[0-9;]+m(.*?)\x1b\\[0m", re.DOTALL)
"""What a terminal would colour (the agent's place, as a rule), shown in brackets instead."""


class GymnasiumEnvironment(Environment):
    """Subclass it, fill in what differs, pass the class to `gyre.env.serve`."""

    env_id: ClassVar[str]
    """As for gymnasium.make."""
    options: ClassVar[dict[str, Any]] = {}
    """Further arguments of gymnasium.make; with render_mode "ansi" the model sees the rendered text."""
    prompt: ClassVar[str] = "Reach the goal. Call act with one action at a time."
    actions: ClassVar[tuple[str, ...]] = ()
    """Names of a discrete space's actions; empty: their numbers."""
    reward_for_success: ClassVar[float] = 1.0
    """The sum of rewards that counts as success."""

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.world = gymnasium.make(self.env_id, **self.options)
        self.over = False

    def tools(self) -> list[dict[str, Any]]:
        action = spaces.schema(self.world.action_space, self.actions)
        parameters = {"type": "object", "properties": {"action": action}, "required": ["action"]}
        act = {"name": "act", "description": "Carry out one action.", "parameters": parameters}
        return [{"type": "function", "function": act}]

    def reset(self) -> list[dict[str, Any]]:
        observation, _ = self.world.reset(seed=self.task.seed % 2**31)
        content = f"{self.prompt}\n{self.describe(observation)}"
        return [{"role": "user", "content": content}]

    def step(self, call: ToolCall) -> StepResult | tuple[str, float, bool, bool, dict[str, Any]]:
        try:
            action = spaces.action(self.world.action_space, call.arguments.get("action", ""), self.actions)
        except ValueError as error:
            return StepResult(content=f"error: {error}", error=True)
        observation, reward, terminated, truncated, info = self.world.step(action)
        self.over = bool(terminated or truncated)
        return self.describe(observation), float(reward), bool(terminated), bool(truncated), info

    def score(self) -> Score:
        evidence = {"reward": self.reward_sum, "over": self.over}
        return Score(outcome=float(self.reward_sum >= self.reward_for_success), evidence=evidence)

    def evidence(self) -> Evidence:
        installed = version("gymnasium")
        return Evidence(image_digest=f"gymnasium-{installed}/{self.env_id}", tool_versions={"gymnasium": installed})

    def close(self) -> None:
        self.world.close()

    def describe(self, observation: Any) -> str:
        """The observation as the model reads it: rendered text, a dict line by line, else its own text."""
        if self.world.render_mode == "ansi":
            return _HIGHLIGHT.sub(r"[\1]", str(self.world.render()))
        return observation_text(observation)

    @classmethod
    def tasks(cls, split: str, count: int, seed: int) -> Iterator[Task]:
        """`count` tasks with seeds of their own; even seeds are for training, odd ones held out."""
        for index in range(count):
            number = 2 * (seed * 1_000_003 + index) + (split == "heldout")
            yield Task(task_id=f"{cls.name}-{split}-{number}", task_type=cls.name, seed=number)

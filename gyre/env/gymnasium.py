"""Any Gymnasium environment with text or small observations and discrete or text actions, as an environment for language models.

One tool, `act(action)`: for a discrete space one of `actions` (names in the order of the space's numbers), for a text space any text. The outcome is
judged from the rewards and the state, never from what the model says.

    class Lake(GymnasiumEnvironment):
        name, env_id = "frozen-lake", "FrozenLake-v1"
        actions = ("left", "down", "right", "up")
"""

import re
from collections.abc import Iterator
from importlib.metadata import version
from typing import Any, ClassVar

import gymnasium

from gyre.env.environment import Environment, Evidence, Score, StepResult, Task, ToolCall

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
        self.reward = 0.0
        self.over = False

    def tools(self) -> list[dict[str, Any]]:
        action: dict[str, Any] = {"type": "string"}
        if self._is_discrete:
            action["enum"] = list(self._names)
        parameters = {"type": "object", "properties": {"action": action}, "required": ["action"]}
        act = {"name": "act", "description": "Carry out one action.", "parameters": parameters}
        return [{"type": "function", "function": act}]

    def reset(self) -> list[dict[str, Any]]:
        observation, _ = self.world.reset(seed=self.task.seed % 2**31)
        content = f"{self.prompt}\n{self.describe(observation)}"
        return [{"role": "user", "content": content}]

    def step(self, call: ToolCall) -> StepResult:
        said = str(call.arguments.get("action", ""))
        if self._is_discrete:
            if said not in self._names:
                return StepResult(
                    content=f"error: unknown action `{said}`; actions: {', '.join(self._names)}", error=True
                )
            action: Any = self._names.index(said) + int(self.world.action_space.start)
        else:
            action = said
        observation, reward, terminated, truncated, _ = self.world.step(action)
        self.reward += float(reward)
        self.over = bool(terminated or truncated)
        return StepResult(content=self.describe(observation), done=self.over)

    def score(self) -> Score:
        evidence = {"reward": self.reward, "over": self.over}
        return Score(outcome=float(self.reward >= self.reward_for_success), evidence=evidence)

    def evidence(self) -> Evidence:
        installed = version("gymnasium")
        return Evidence(image_digest=f"gymnasium-{installed}/{self.env_id}", tool_versions={"gymnasium": installed})

    def close(self) -> None:
        self.world.close()

    def describe(self, observation: Any) -> str:
        """The observation as the model reads it: rendered text, a dict line by line, else its own text."""
        if self.world.render_mode == "ansi":
            return _HIGHLIGHT.sub(r"[\1]", str(self.world.render()))
        if isinstance(observation, dict):
            return "\n".join(f"{name}: {value}" for name, value in observation.items())
        return str(observation)

    @classmethod
    def tasks(cls, split: str, count: int, seed: int) -> Iterator[Task]:
        """`count` tasks with seeds of their own; even seeds are for training, odd ones held out."""
        for index in range(count):
            number = 2 * (seed * 1_000_003 + index) + (split == "heldout")
            yield Task(task_id=f"{cls.name}-{split}-{number}", task_type=cls.name, seed=number)

    @property
    def _is_discrete(self) -> bool:
        return isinstance(self.world.action_space, gymnasium.spaces.Discrete)

    @property
    def _names(self) -> tuple[str, ...]:
        return self.actions or tuple(str(index) for index in range(int(self.world.action_space.n)))

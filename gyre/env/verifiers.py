"""Any environment of Prime Intellect's verifiers (`vf.Environment`), which holds the conversation itself: it calls the model through the
gateway as an OpenAI client, and its rubric's reward is the outcome.

    class Sums(VerifiersEnvironment):
        name, env_id = "sums", "sums"              # as for vf.load_environment; or module:function

What verifiers counts as an error fails the execution; used-up turns and a full context are scored by the rubric on what was said until
then, and so is a conversation that was cut off by the wall clock. Tried with verifiers 0.2.0, the last before its API of tasksets.
"""

import copy
import importlib
import json
import math
from collections.abc import Iterator
from importlib.metadata import version
from typing import Any, ClassVar

import verifiers as vf
from openai import AsyncOpenAI

from gyre.env.driven import Agent, Driven, limit_reached
from gyre.env.environment import Evidence, Score, Task
from gyre.errors import InvalidInput

CALL_S, CALL_RETRIES = 86_400.0, 100
"""A call may wait for its cell, or for its execution to be resumed, and a gateway may start anew: what ends it is the wall clock."""


class VerifiersEnvironment(Driven):
    """Subclass it, fill in what differs, pass the class to `gyre.env.serve`."""

    env_id: ClassVar[str]
    """As for vf.load_environment, or `module:function` of what returns a vf.Environment."""
    env_args: ClassVar[dict[str, Any]] = {}
    reward_range: ClassVar[tuple[float, float]] = (0.0, 1.0)
    """Rewards that count as 0 and as 1; what lies between is scaled, what lies beyond is cut."""
    sampling: ClassVar[dict[str, Any]] = {}
    """Further arguments of its model calls."""

    _loaded: ClassVar[vf.Environment | None] = None

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.state: dict[str, Any] | None = None
        self.world = copy.copy(self.load())

    @classmethod
    def load(cls) -> vf.Environment:
        """Once for a process, in its main thread (verifiers sets signal handlers), so before `serve`; executions differ in their row."""
        if cls.__dict__.get("_loaded") is None:
            module, _, function = cls.env_id.partition(":")
            load = (
                getattr(importlib.import_module(module), function)
                if function
                else lambda **given: vf.load_environment(module, **given)
            )
            cls._loaded = load(**cls.env_args)
        return cls._loaded

    def row(self) -> dict[str, Any]:
        """The task's row of the data set: payload's `row`, else the seed's; of the evaluation's set where payload says split = heldout."""
        is_heldout = self.task.payload.get("split") == "heldout"
        rows = self.world.get_eval_dataset() if is_heldout else self.world.get_dataset()
        return dict(rows[int(self.task.payload.get("row", self.task.seed)) % len(rows)])

    async def run(self, agent: Agent) -> None:
        begin = self.world.init_state

        async def init_state(*args: Any, **given: Any) -> Any:
            self.state = await begin(*args, **given)  # ours to score should the conversation be cut off
            return self.state

        self.world.init_state = init_state
        async with AsyncOpenAI(
            base_url=agent.base_url, api_key=agent.api_key, timeout=CALL_S, max_retries=CALL_RETRIES
        ) as openai:
            client = vf.OpenAIChatCompletionsClient(openai)
            self.state = await self.world.rollout(self.row(), client, agent.model, agent.sampling | self.sampling)
        if (error := self.state.get("error")) is not None:
            raise limit_reached(error) or error

    async def score(self) -> Score:
        if self.state is None:
            return Score(outcome=0.0, valid=False, evidence={"verifiers": "it was cut off before it began"})
        await self.world.rubric.score_rollout(self.state)
        await self.world.rubric.cleanup(self.state)
        reward = float(self.state["reward"])
        if not math.isfinite(reward):
            raise InvalidInput(f"the rubric's reward is {reward}")
        low, high = self.reward_range
        found = {
            "reward": reward,
            "metrics": self.state.get("metrics") or {},
            "stop": self.state.get("stop_condition") or "",
        }
        evidence = json.loads(json.dumps(found, default=str))
        return Score(outcome=min(1.0, max(0.0, (reward - low) / (high - low))), evidence=evidence)

    def evidence(self) -> Evidence:
        installed = version("verifiers")
        return Evidence(image_digest=f"verifiers-{installed}/{self.env_id}", tool_versions={"verifiers": installed})

    @classmethod
    def tasks(cls, split: str, count: int, seed: int) -> Iterator[Task]:
        """`count` tasks, one row each in turn; the library is not needed for it."""
        for index in range(count):
            number = 2 * (seed * 1_000_003 + index) + (split == "heldout")
            payload = {"split": split, "row": seed * count + index}
            yield Task(task_id=f"{cls.name}-{split}-{number}", task_type=cls.name, seed=number, payload=payload)

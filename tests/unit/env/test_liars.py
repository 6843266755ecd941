"""Environments that lie in the newer shapes: each costs its own execution, with what would be right, and never becomes a reward (B4, D5)."""

import aiohttp
import pytest

from gyre.env import Score, Task
from gyre.env.episode import Episode, Limits
from gyre.env.model import ChatModel
from tests.unit.env.doubles import ChatDouble, Counter, tool_reply

BLOCK = {"type": "smell", "text": "roses"}
LIES = {
    "a tool without a name": ({"tools": [{"type": "function", "function": {"parameters": {}}}]}, "each with a name"),
    "a tool whose name is a number": ({"tools": [{"name": 7, "inputSchema": {}}]}, "each with a name"),
    "tools that are one tool": ({"tools": {"name": "count"}}, "must return a list of tools"),
    "a reward of NaN": ({"step": ("x", float("nan"), False, False, {})}, "reward must be a number"),
    "a reward in words": ({"step": ("x", "much", False, False, {})}, "reward must be a number"),
    "four of five": ({"step": ("x", 1.0, False, False)}, "no StepResult with text: tuple"),
    "an info that is none": ({"step": ("x", 1.0, False, False, 7)}, "info must be a dict"),
    "a block of an unknown type": ({"step": {"content": [BLOCK]}}, "must have a type of text, image"),
    "blocks that are words": ({"step": {"content": ["roses"]}}, "must have a type of text, image"),
    "a result of another request": ({"step": {"id": 3, "result": {}}}, "no StepResult with text: dict"),
    "an outcome of NaN": ({"score": Score(outcome=float("nan"))}, "a number from 0 to 1"),
    "an outcome of 1.5": ({"score": Score(outcome=1.5)}, "a number from 0 to 1"),
    "a milestone never declared": ({"score": Score(outcome=1.0, milestones={"flew": True})}, "does not declare: flew"),
}
"""What it says in place of what it should → words of the ending's detail."""


async def run(factory):
    async def started(evidence) -> None:
        pass

    limits = Limits(wall_s=60, turns_max=5, observation_bytes_max=1000)
    async with ChatDouble(lambda body, n: tool_reply()) as chat, aiohttp.ClientSession() as http:
        model = ChatModel(http, lambda: chat.base, "key", {"model": "policy"})
        return await Episode(factory, Task(task_id="t", task_type="t", seed=1), limits, model, started).run()


@pytest.mark.parametrize("lie", LIES)
async def test_a_lie_is_a_failure_with_what_would_be_right(lie):
    said, words = LIES[lie]

    class Liar(Counter):
        def tools(self):
            return said.get("tools", super().tools())

        def step(self, call):
            return said.get("step", super().step(call))

        def score(self):
            return said.get("score", super().score())

    ending = await run(Liar)
    assert (ending.ending, ending.reason, ending.evaluation) == ("failed", "environment_invalid", None)
    assert words in ending.detail


async def test_a_world_without_end_is_ended_by_its_turns_and_judged():
    """Nothing it says stops it: five turns, then what is there is scored."""

    class Endless(Counter):
        def step(self, call):
            return "still here", 0.0, False, False, {}

    ending = await run(Endless)
    assert (ending.ending, ending.reason, ending.external_calls) == ("timed_out", "turns", 5)
    assert ending.evaluation.valid and ending.evaluation.outcome == 0.0

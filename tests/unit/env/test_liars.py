"""Environments that lie in the newer shapes: each costs its own execution, with what would be right, and never becomes a reward (B4, D5)."""

import itertools

import aiohttp
import pytest

from gyre.env import Score, StepResult, Task
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


class Pair:
    """As an array of two: neither true nor false."""

    def __bool__(self) -> bool:
        raise ValueError("the truth value of an array is ambiguous")


LIES |= {
    "an end that is an array": ({"step": StepResult(content="x", done=Pair())}, "done must be true or false, not Pair"),
    "a reward beyond all numbers": ({"step": ("x", 10**400, False, False, {})}, "reward must be a number"),
    "an outcome beyond all numbers": ({"score": Score(outcome=10**400)}, "a number from 0 to 1"),
    "an outcome in words": ({"score": Score(outcome="1")}, "a number from 0 to 1"),
    "milestones in a list": (
        {"score": Score(outcome=1.0, milestones=["counted"])},
        "must be a dict of names, not list",
    ),
    "a milestone that is an array": (
        {"score": Score(outcome=1.0, milestones={"counted": Pair()})},
        "must be true or false",
    ),
    "evidence in a list": ({"score": Score(outcome=1.0, evidence=[1])}, "Score.evidence must be a dict, not list"),
    "verified without an end": ({"verified": (word for word in itertools.repeat("flew"))}, "does not declare: 'flew'"),
    "a result that is a generator": ({"step": (word for word in "ab")}, "no StepResult with text: generator"),
}


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

        def verified(self):
            return said.get("verified", set())

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


class Number:
    """As numpy's float32 of no dimension: no float of Python's, and json does not know it."""

    shape = ()

    def __init__(self, value: float) -> None:
        self._value = value

    def __float__(self) -> float:
        return self._value

    def item(self) -> float:
        return self._value


async def test_numbers_of_a_numerical_library_are_numbers():
    class Numerical(Counter):
        def step(self, call):
            super().step(call)
            return len(self.calls), Number(0.5), len(self.calls) == 3, False, {}

        def score(self):
            return Score(outcome=Number(0.75), evidence={"best": Number(3.0), "reward": self.reward_sum})

    ending = await run(Numerical)
    assert (ending.ending, ending.evaluation.outcome) == ("completed", 0.75)
    assert ending.evaluation.evidence_json == '{"best": 3.0, "reward": 1.5}'


@pytest.mark.parametrize("where", ["reset", "step", "score"])
async def test_an_error_that_cannot_be_put_into_words_is_an_error_all_the_same(where):
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no words")

        __repr__ = __str__

    def mute(*_):
        raise Mute

    ending = await run(type("Broken", (Counter,), {where: mute}))
    if where == "score":
        assert (ending.ending, ending.evaluation.valid, ending.evaluation.tries) == ("completed", False, 3)
    else:
        assert (ending.ending, ending.reason) == ("failed", "environment_error")


async def test_secrets_in_an_errors_words_are_not_told():
    """The detail goes into the books."""

    class Leaky(Counter):
        def step(self, call):
            raise RuntimeError("GET https://host/search?q=1&api_key=hunter2hunter2 failed")

    ending = await run(Leaky)
    assert "hunter2" not in ending.detail and "https://host/search?q=1&[redacted] failed" in ending.detail

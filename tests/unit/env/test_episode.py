"""One execution driven from reset to close, against a double of the chat endpoint."""

import asyncio
import threading

import aiohttp
import pytest

from gyre.env import Environment, Score, StepResult, Task
from gyre.env.episode import Ending, Episode, Limits
from gyre.env.limits import cut_text
from gyre.env.model import ChatModel
from gyre.env.wall import WallClock
from gyre.env.worker import Threads
from tests.unit.env.doubles import COUNT_TOOL, ChatDouble, Counter, tool_reply

TASK = Task(task_id="t1", task_type="count", seed=7)


class FromWhenItIsUp(WallClock):
    """Its seconds begin when the world is up, for which a busy machine may take longer than they last."""

    def start(self, wall_s: float) -> None:
        super().start(600.0)

    def begin(self, wall_s: float) -> None:
        super().start(wall_s)


async def drive(
    factory, answer, wall_s=600, turns_max=10, observation_bytes_max=1000
) -> tuple[Ending, ChatDouble, list]:
    started, wall = [], FromWhenItIsUp()

    async def note(evidence) -> None:
        started.append(evidence)
        wall.begin(wall_s)

    async with ChatDouble(answer) as chat, aiohttp.ClientSession() as http:
        model = ChatModel(http, lambda: chat.base, "key-1", {"model": "policy"})
        limits = Limits(wall_s=wall_s, turns_max=turns_max, observation_bytes_max=observation_bytes_max)
        return await Episode(factory, TASK, limits, model, note, wall=wall).run(), chat, started


@pytest.fixture(autouse=True)
def none_closed():
    Counter.closed = 0


async def test_a_submitted_execution_is_completed_scored_and_closed_once():
    """B4: three tool calls reach the goal, so outcome 1 with its milestone, three external calls, three model calls."""
    ending, chat, started = await drive(Counter, lambda body, n: tool_reply())
    assert (ending.ending, ending.reason, ending.external_calls) == ("completed", "submitted", 3)
    assert ending.evaluation.outcome == 1.0 and ending.evaluation.milestones == {"counted": True}
    assert len(chat.requests) == 3 and len(started) == 1 and Counter.closed == 1
    assert chat.requests[0]["tools"] == [COUNT_TOOL] and chat.headers[0]["Authorization"] == "Bearer key-1"
    assert chat.requests[2]["messages"][-1] == {"role": "tool", "tool_call_id": "call-1", "content": "2"}


async def test_a_reply_without_a_tool_call_ends_the_execution_as_stopped():
    ending, _, _ = await drive(Counter, lambda body, n: {"role": "assistant", "content": "done"})
    assert (ending.ending, ending.reason, ending.evaluation.outcome) == ("completed", "stopped", 0.0)


async def test_the_turn_limit_scores_what_was_left_behind():
    """B4: two of three counts done when the two turns are over."""
    ending, chat, _ = await drive(Counter, lambda body, n: tool_reply(), turns_max=2)
    assert (ending.ending, ending.reason) == ("timed_out", "turns") and len(chat.requests) == 2
    assert ending.evaluation.valid and ending.evaluation.milestones == {"counted": True}


@pytest.mark.parametrize("arguments", ["{not json", "[1]", '"text"', "[" * 100_000])
async def test_arguments_that_are_no_json_object_cost_a_turn_and_are_told_to_the_model(arguments):
    """Bad input: the first turn is spent on the error, the next three count to three; the environment never saw it."""
    ending, chat, _ = await drive(Counter, lambda body, n: tool_reply(arguments if n == 1 else "{}"))
    assert ending.reason == "submitted" and ending.external_calls == 3 and len(chat.requests) == 4
    assert "not a JSON object" in chat.requests[1]["messages"][-1]["content"]


async def test_an_unknown_tool_is_answered_with_the_names_that_exist():
    _, chat, _ = await drive(Counter, lambda body, n: tool_reply(name="fly" if n == 1 else "count"))
    assert chat.requests[1]["messages"][-1]["content"] == "error: there is no tool `fly`; tools: count"


async def test_an_environment_that_raises_is_failed_with_bounded_detail_and_no_score():
    """NeMo-RL#3470: an error is an ending of its own and never a reward."""

    class Raises(Counter):
        def step(self, call):
            raise RuntimeError("x" * 100_000)

    ending, _, _ = await drive(Raises, lambda body, n: tool_reply())
    assert (ending.ending, ending.reason, ending.evaluation) == ("failed", "environment_error", None)
    assert len(ending.detail) <= 2000 and Raises.closed == 1


async def test_an_environment_that_never_came_up_is_failed():
    class Broken(Counter):
        def reset(self):
            raise OSError("no image")

    ending, chat, started = await drive(Broken, lambda body, n: tool_reply())
    assert (ending.ending, ending.reason) == ("failed", "environment_error") and "no image" in ending.detail
    assert not chat.requests and not started and Broken.closed == 1


async def test_a_factory_that_raises_is_failed_and_nothing_is_closed():
    def factory(task):
        raise ValueError("no such seed")

    ending, _, _ = await drive(factory, lambda body, n: tool_reply())
    assert (ending.ending, ending.reason) == ("failed", "environment_error")


@pytest.mark.parametrize(
    "rubbish", [{"step": 17}, {"reset": "hello"}, {"score": {"outcome": 1}}, {"score": Score(outcome=float("nan"))},
                {"score": Score(outcome=2.0)}, {"score": Score(outcome=1.0, milestones={"undeclared": True})},
                {"score": Score(outcome=1.0, evidence={"x": object()})}, {"tools": [1]}, {"evidence": None}],
)  # fmt: skip
async def test_an_environment_that_answers_rubbish_is_failed_as_invalid(rubbish):
    name, value = next(iter(rubbish.items()))
    kind = type("Rubbish", (Counter,), {name: lambda self, *arguments: value})
    ending, _, _ = await drive(kind, lambda body, n: tool_reply())
    assert (ending.ending, ending.reason, ending.evaluation) == ("failed", "environment_invalid", None)


async def test_a_huge_observation_is_cut_and_says_so():
    """Bad input: 100 MB from a tool reach the model as 1000 bytes, the configured bound."""

    class Huge(Counter):
        def step(self, call):
            return StepResult(content="a" * 100_000_000)

    _, chat, _ = await drive(Huge, lambda body, n: tool_reply(), turns_max=2)
    content = chat.requests[1]["messages"][-1]["content"]
    assert len(content) <= 1000 and "[cut: 100000000 bytes" in content


def test_cutting_never_splits_a_character_and_keeps_the_bound():
    """é is two bytes in UTF-8: 300 of them are 600 bytes."""
    for bound in range(80, 120):
        assert len(cut_text("é" * 300, bound).encode()) <= bound
    assert cut_text("é" * 300, 600) == "é" * 300


async def test_a_step_that_hangs_is_left_behind_and_the_rest_is_scored():
    """B4: the wall clock ends at .3 s, the hung thread is abandoned, score still answers from another thread."""
    release = threading.Event()

    class Hangs(Counter):
        def step(self, call):
            release.wait(600)

    ending, _, _ = await drive(Hangs, lambda body, n: tool_reply(), wall_s=0.3)
    release.set()
    assert (ending.ending, ending.reason, ending.evaluation.outcome) == ("timed_out", "wall", 0.0)
    assert Hangs.closed == 1


async def test_a_hung_step_whose_world_cannot_be_scored_is_failed_as_hung():

    class Hangs(Counter):
        async def step(self, call):
            await asyncio.sleep(600)

        def score(self):
            raise RuntimeError("locked")

    ending, _, _ = await drive(Hangs, lambda body, n: tool_reply(), wall_s=2.0)
    assert (ending.ending, ending.reason, ending.evaluation) == ("failed", "environment_hung", None)


async def test_a_silent_model_ends_at_the_wall_clock():
    async def silent(body, n):
        await asyncio.sleep(600)

    ending, _, _ = await drive(Counter, silent, wall_s=0.4)
    assert (ending.ending, ending.reason) == ("timed_out", "wall")


async def test_a_busy_or_restarting_gateway_is_asked_again_with_the_same_messages():
    """429 with Retry-After, 503, then tokens: one turn, and all three requests are alike (AReaL#1498: no fork)."""

    def answer(body, n):
        busy = {1: (429, {"Retry-After": "0.05"}, {}), 2: (503, {}, {})}
        return busy.get(n) or {"role": "assistant", "content": "fine"}

    ending, chat, _ = await drive(Counter, answer)
    assert ending.reason == "stopped" and len(chat.requests) == 3
    assert chat.requests[0] == chat.requests[1] == chat.requests[2]


async def test_a_full_context_is_an_ordinary_ending():
    refusal = (400, {}, {"error": {"code": "context_length_exceeded", "message": "1030 tokens, 1024 at most"}})
    ending, _, _ = await drive(Counter, lambda body, n: tool_reply() if n == 1 else refusal)
    assert (ending.ending, ending.reason) == ("timed_out", "context") and ending.evaluation.milestones["counted"]


async def test_an_evaluation_is_tried_three_times_and_then_invalid_never_zero():
    """B4"""

    class Flaky(Counter):
        tries = 0

        def score(self):
            type(self).tries += 1
            raise RuntimeError("no answer")

    ending, _, _ = await drive(Flaky, lambda body, n: tool_reply())
    assert Flaky.tries == 3 and ending.evaluation.valid is False and ending.evaluation.tries == 3


async def test_async_methods_work_as_plain_ones_do():
    class Asynchronous(Environment):
        name = "a"

        async def _now(self, value):
            await asyncio.sleep(0)
            return value

        async def tools(self):
            return [COUNT_TOOL]

        async def reset(self):
            return await self._now([{"role": "user", "content": "hi"}])

        async def step(self, call):
            return await self._now(StepResult(content="ok", done=True))

        async def score(self):
            return Score(outcome=1.0)

        async def close(self):
            Counter.closed += 1

    ending, _, _ = await drive(Asynchronous, lambda body, n: tool_reply())
    assert ending.reason == "submitted" and Counter.closed == 1


async def test_a_cancelled_execution_is_closed_once():
    asked = asyncio.Event()

    async def silent(body, n):
        asked.set()
        await asyncio.sleep(600)

    task = asyncio.create_task(drive(Counter, silent))
    await asked.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert Counter.closed == 1


async def test_a_thread_outlives_its_execution_and_serves_the_next():
    """A child process made in it, with the wish to die with its parent, lives on: Linux means the parent's thread."""
    threads = Threads()
    seen = []

    class Looks(Counter):
        def reset(self):
            seen.append(threading.current_thread())
            return super().reset()

    async with ChatDouble(lambda body, n: tool_reply()) as chat, aiohttp.ClientSession() as http:
        for _ in range(2):
            model = ChatModel(http, lambda: chat.base, "key-1", {})
            limits = Limits(wall_s=600, turns_max=3, observation_bytes_max=1000)
            await Episode(Looks, TASK, limits, model, _ignored, threads=threads).run()
            await asyncio.sleep(0.05)
    assert seen[0] is seen[1] and seen[0].is_alive()


async def _ignored(evidence) -> None:
    pass

"""Functions and environments that hold the conversation themselves (SDK of issue "Rollout for real harnesses")."""

import asyncio
import contextlib
import functools
import json
import threading
from functools import partial

import aiohttp
import openai
import pytest

from gyre.env import Driven, Score, Task
from gyre.env.driven import FunctionEnvironment, is_function
from gyre.env.episode import Episode, Limits
from gyre.env.model import ChatModel
from gyre.env.wall import WallClock
from gyre.env.worker import SHARED
from gyre.keyed_url import with_key
from tests.support import until
from tests.unit.env.doubles import ChatDouble, Counter

TASK = Task(task_id="t", task_type="f", seed=4)
TURNS_OVER = (400, {}, {"error": {"message": "2 turns were made", "code": "turns_exceeded", "type": "invalid_request"}})


def say(text: str):
    return lambda body, n: {"role": "assistant", "content": text}


async def run(factory, chat: ChatDouble, wall_s: float = 600.0, wall: WallClock | None = None):
    async def started(evidence) -> None:
        pass

    limits = Limits(wall_s=wall_s, turns_max=5, observation_bytes_max=1000)
    async with aiohttp.ClientSession() as http:
        model = ChatModel(http, lambda: chat.base, "key-1", {"model": "policy", "temperature": 0.5})
        return await Episode(factory, TASK, limits, model, started, wall=wall).run()


def of(function):
    return partial(FunctionEnvironment, function)


async def test_an_async_function_talks_to_the_model_and_returns_its_outcome():
    async def guess(task, agent):
        reply = await agent.chat([{"role": "user", "content": "number?"}])
        return float(reply["content"] == str(task.seed))

    async with ChatDouble(say("4")) as chat:
        ending = await run(of(guess), chat)
    assert (ending.ending, ending.reason, ending.evaluation.outcome) == ("completed", "stopped", 1.0)
    assert chat.requests[0]["temperature"] == 0.5


async def test_a_plain_function_runs_in_a_thread_and_may_use_any_client():
    """The official client with the execution's base URL and key, and `ask` without a client."""

    def guess(task, agent):
        client = openai.OpenAI(base_url=agent.base_url, api_key=agent.api_key, max_retries=0)
        said = client.chat.completions.create(model=agent.model, messages=[{"role": "user", "content": "?"}])
        again = agent.ask([{"role": "user", "content": "?"}])
        return Score(outcome=0.5, evidence={"said": said.choices[0].message.content, "again": again["content"]})

    async with ChatDouble(say("4")) as chat:
        ending = await run(of(guess), chat)
    assert ending.evaluation.evidence_json == '{"said": "4", "again": "4"}'
    assert {headers["Authorization"] for headers in chat.headers} == {"Bearer key-1"}


async def test_a_client_without_a_key_is_told_whose_its_calls_are_by_the_url():
    def guess(task, agent):
        client = openai.OpenAI(base_url=agent.url_with_key, api_key="unused", max_retries=0)
        said = client.chat.completions.create(model=agent.model, messages=[{"role": "user", "content": "?"}])
        return Score(outcome=0.5, evidence={"said": said.choices[0].message.content, "url": agent.url_with_key})

    async with ChatDouble(say("4")) as chat:
        ending = await run(of(guess), chat)
        assert json.loads(ending.evaluation.evidence_json) == {"said": "4", "url": with_key(chat.base, "key-1")}


class Patient(Driven):
    """Asks until something stops it; judged by how often it could ask."""

    name = "patient"

    def __init__(self, task):
        super().__init__(task)
        self.asked = 0

    async def run(self, agent):
        client = openai.AsyncOpenAI(base_url=agent.base_url, api_key=agent.api_key, max_retries=0)
        while True:
            await client.chat.completions.create(model=agent.model, messages=[{"role": "user", "content": "?"}])
            self.asked += 1

    def score(self):
        return Score(outcome=self.asked / 4)


async def test_used_up_turns_end_it_and_the_work_is_scored_also_through_a_client_of_its_own():
    """B4: the gateway's 400 turns_exceeded reaches us inside openai's exception; two of four is .5."""
    async with ChatDouble(lambda body, n: say("x")(body, n) if n <= 2 else TURNS_OVER) as chat:
        ending = await run(Patient, chat)
    assert (ending.ending, ending.reason, ending.evaluation.outcome) == ("timed_out", "turns", 0.5)


async def test_a_full_context_ends_it_and_the_work_is_scored():
    full = (400, {}, {"error": {"message": "600 of 512 tokens", "code": "context_length_exceeded"}})
    async with ChatDouble(lambda body, n: say("x")(body, n) if n <= 1 else full) as chat:
        ending = await run(Patient, chat)
    assert (ending.ending, ending.reason, ending.evaluation.outcome) == ("timed_out", "context", 0.25)


async def test_the_end_of_the_wall_clock_cuts_it_off_and_the_work_is_scored():
    """B4: the clock ends while the second answer is awaited, which never comes; the conversation is cancelled, one of four is .25."""
    wall = WallClock()

    async def never(body, n):
        if n == 1:
            return say("x")(body, n)
        wall.expire("wall")
        await asyncio.Event().wait()

    async with ChatDouble(never) as chat:
        ending = await run(Patient, chat, wall=wall)
    assert (ending.ending, ending.reason, ending.evaluation.outcome) == ("timed_out", "wall", 0.25)


async def test_its_wall_clock_stands_still_while_it_is_suspended():
    """C2: paused from the start, none of its seconds is gone half a second later."""
    wall, loop = WallClock(), asyncio.get_running_loop()
    wall.pause()

    async def wait(task, agent):
        await asyncio.sleep(0.5)
        left_s = agent.left_s
        loop.call_soon_threadsafe(wall.resume)
        return float(left_s == pytest.approx(60.0))

    async with ChatDouble(say("4")) as chat:
        ending = await run(of(wait), chat, wall_s=60.0, wall=wall)
    assert (ending.ending, ending.evaluation.outcome) == ("completed", 1.0)


async def test_the_clock_runs_out_by_itself_and_pauses_are_not_counted():
    """Of a fifth of a second; the pause in it is as long as the test likes."""
    wall = WallClock()
    wall.start(0.2)
    wall.pause()
    running_out = asyncio.create_task(wall.run_out())
    await asyncio.sleep(0.4)
    assert not wall.cut.is_set()
    wall.resume()
    await running_out
    assert wall.cut.is_set() and wall.reason == "wall"


async def test_what_a_cut_off_function_said_so_far_is_its_score_and_one_that_said_nothing_has_none():
    """An invalid evaluation is no zero (B4)."""
    walls, loop = [WallClock(), WallClock()], asyncio.get_running_loop()

    async def careful(task, agent):
        agent.score = 0.75
        loop.call_soon_threadsafe(walls[0].expire, "wall")
        await asyncio.Event().wait()

    async def careless(task, agent):
        loop.call_soon_threadsafe(walls[1].expire, "wall")
        await asyncio.Event().wait()

    async with ChatDouble(say("4")) as chat:
        said = await run(of(careful), chat, wall=walls[0])
        nothing = await run(of(careless), chat, wall=walls[1])
    assert (said.reason, said.evaluation.valid, said.evaluation.outcome) == ("wall", True, 0.75)
    assert (nothing.reason, nothing.evaluation.valid) == ("wall", False)


async def test_an_error_in_it_is_an_ending_of_its_own_and_no_reward():
    def broken(task, agent):
        raise RuntimeError("my loop broke")

    async with ChatDouble(say("4")) as chat:
        ending = await run(of(broken), chat)
    assert (ending.ending, ending.reason, ending.evaluation) == ("failed", "environment_error", None)
    assert "my loop broke" in ending.detail


async def test_cancelling_the_execution_cancels_the_conversation():
    begun, gone = threading.Event(), threading.Event()

    async def wait(task, agent):
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            gone.set()

    async with ChatDouble(say("4")) as chat:
        running = asyncio.create_task(run(of(wait), chat))
        await until(begun.is_set)
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running
    assert gone.is_set()


@pytest.mark.parametrize(
    "factory, expected", [(lambda task, agent: 1, True), (lambda task: 1, False), (Counter, False), (Patient, False), (3, False)]
)  # fmt: skip
def test_functions_are_told_from_makers_of_environments(factory, expected):
    assert is_function(factory) is expected


def decorated(function):
    @functools.wraps(function)
    def plain(*arguments):
        return function(*arguments)

    return plain


class Object:
    async def __call__(self, task, agent):
        return float(len((await agent.chat([{"role": "user", "content": "?"}]))["content"]))


@pytest.mark.parametrize("function", [Object(), decorated(Object().__call__)], ids=["object", "decorated"])
async def test_whatever_a_function_hands_back_to_be_awaited_is_awaited(function):
    async with ChatDouble(say("4")) as chat:
        ending = await run(of(function), chat)
    assert (ending.ending, ending.evaluation and ending.evaluation.outcome) == ("completed", 1.0), ending.detail


@pytest.mark.parametrize("kind", ["plain", "async"])
async def test_executions_one_after_the_other_leave_no_threads_behind(kind):
    """A process that serves a function for days has as many threads as executions at once needed, not as there ever were."""

    def plain(task, agent):
        return 1.0

    async def other(task, agent):
        return 1.0

    async with ChatDouble(say("4")) as chat:
        counts = []
        for _ in range(12):
            assert (await run(of(plain if kind == "plain" else other), chat)).ending == "completed"
            counts.append(threading.active_count())
            await until(lambda: SHARED._idle)
    assert counts[-1] - counts[1] <= 3, counts

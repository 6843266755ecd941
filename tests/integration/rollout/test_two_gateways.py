"""Two gateways of one run: any of them takes a call, one of them writes a session, and either may be lost (state and restarts, B1)."""

import asyncio
import signal
import threading

import openai
import pytest_asyncio

from gyre.api.rollout.v1 import environments_pb2 as pb
from gyre.bus.server import free_port
from gyre.env.serving import serve_async
from gyre.records import ExecutionEnded, ExecutionLeased
from gyre.tasks import end
from tests.support import TestRun

from .conftest import SETTINGS
from .driver import Driver, EnvironmentDouble
from .test_gateway import GOOD, START, said_back

PATIENCE_S = 60.0


@pytest_asyncio.fixture
async def driver(tmp_path, model_dir):
    """One cell; the environment is attached to the first gateway."""
    settings = {
        **SETTINGS, "scheduler": {"cells": 1}, "rollout": {**SETTINGS["rollout"], "gateways": 2, "lease_s": 5.0}, "model": {"path": str(model_dir)},
    }  # fmt: skip
    run = TestRun(tmp_path, settings)
    names = ("bus", "scheduler", "rollout", "gateway", "cell-0")
    more = {name: f"127.0.0.1:{free_port()}" for name in ("rollout-1", "gateway-1")}
    run.folder.write_endpoints({name: run.folder.endpoint(name) for name in names} | more)
    async with run:
        cell = await run.start("services.rollout.cell", "--cell", "0", endpoint="cell-0")
        first = await run.start("services.rollout", endpoint="rollout")
        await run.start("services.rollout", "--gateway", "1", endpoint="rollout-1")
        made = Driver(run, first, [cell])
        made._change = {"cell-0": 0}
        async with made:
            await made.new_environment()
            yield made
            await made.environment.detach()


def client(driver: Driver, gateway: str, key: str) -> openai.AsyncOpenAI:
    """With the patience of a harness: 503 is asked again."""
    base = f"http://{driver.run.folder.endpoint(gateway)}/v1"
    return openai.AsyncOpenAI(base_url=base, api_key=key, max_retries=20, timeout=PATIENCE_S)


async def test_a_session_goes_on_at_the_other_gateway_when_its_own_is_killed(driver):
    """A call at the wrong gateway is passed on, streamed or not, and so is the count of its tokens. After kill -9 the other one takes the session
    over with all that is recorded of it: one path, no call twice, the ending's books whole."""
    key, attempt = await driver.begin(turns_max=20)
    here, there = client(driver, "gateway", key), client(driver, "gateway-1", key)
    first = await here.chat.completions.create(model="m", messages=START)
    messages = [*START, said_back(first.choices[0].message), {"role": "user", "content": "on"}]
    counted = await there.responses.input_tokens.count(model="m", input=messages)
    second = await there.chat.completions.create(model="m", messages=messages)
    assert counted.input_tokens == second.usage.prompt_tokens, (
        "with the recorded tokens, which only the other one knows"
    )
    messages += [said_back(second.choices[0].message), {"role": "user", "content": "and on"}]
    streamed = [chunk async for chunk in await there.chat.completions.create(model="m", messages=messages, stream=True)]
    assert streamed[-1].choices[0].finish_reason is not None
    await driver.recorded(3)

    await driver.environment.detach()
    driver.gateway.send_signal(signal.SIGKILL)
    await driver.gateway.wait()
    environment = driver.environment
    environment.endpoint = "rollout-1"
    welcome = await environment.attach()
    assert not welcome.welcome.unknown
    again = await there.chat.completions.create(model="m", messages=messages)
    assert again.id == streamed[0].id, "the retry of a call on record is that record"
    messages += [said_back(again.choices[0].message), {"role": "user", "content": "last"}]
    await there.chat.completions.create(model="m", messages=messages)

    ended = pb.Ended(ending="completed", reason="submitted", evaluation=GOOD)
    name = await environment.say(driver.execution, attempt, ended=ended)
    async with asyncio.timeout(PATIENCE_S):
        while (reply := await environment.inbox.get()).request_id != name:
            pass
    assert reply.HasField("accepted"), reply
    ending = await driver.ending()
    records = await driver.recorded(4)
    assert [record.call_index for record in records] == [0, 1, 2, 3]
    assert [record.parent for record in records] == ["", *(record.call_id for record in records[:-1])]
    assert [r.parent_tokens for r in records[1:]] == [r.prompt_tokens + len(r.output_ids) // 4 for r in records[:-1]]
    assert (ending.attempt, ending.turns, ending.calls) == (attempt, 4, 4)


async def test_a_gateway_that_stood_still_lets_go_of_what_another_one_has_leased_anew(driver):
    """Stopped for longer than the queue waits: the other gateway gives the execution to its own environment as the next attempt. Going on, the first
    one tells its environment to stop, refuses that one's ending, and leaves alone the message that is attempt 2's."""
    _, attempt = await driver.begin(turns_max=20)
    first = driver.environment
    second = EnvironmentDouble(driver.run, "second", first.name)
    second.endpoint = "rollout-1"
    await second.attach()
    driver.gateway.send_signal(signal.SIGSTOP)
    try:
        _, newer = await second.begin(driver.execution)
    finally:
        driver.gateway.send_signal(signal.SIGCONT)
    assert newer > attempt
    late = await first.say(
        driver.execution, attempt, ended=pb.Ended(ending="completed", reason="submitted", evaluation=GOOD)
    )
    said: dict[str, pb.AttachResponse] = {}
    async with asyncio.timeout(PATIENCE_S):
        while len(said) < 2:
            message = await first.inbox.get()
            if message.HasField("cancel") or message.request_id == late:
                said[message.WhichOneof("body")] = message
    assert (said["cancel"].attempt, said["refused"].attempt) == (attempt, attempt)
    name = await second.say(
        driver.execution, newer, ended=pb.Ended(ending="completed", reason="submitted", evaluation=GOOD)
    )
    async with asyncio.timeout(PATIENCE_S):
        while (reply := await second.inbox.get()).request_id != name:
            pass
    assert reply.HasField("accepted"), reply
    await driver.run.heard_all()
    about = driver.about()
    assert [fact.attempt for fact in about if isinstance(fact, ExecutionLeased)] == [attempt, newer]
    assert [(fact.attempt, fact.ending) for fact in about if isinstance(fact, ExecutionEnded)] == [(newer, "completed")]
    await second.detach()


async def test_an_environment_of_the_sdk_goes_on_at_the_other_gateway(driver):
    """It knows both addresses. Its gateway is killed between two calls: the same attempt goes on at the other one, its second call is made there with
    the first on record, and it ends as ever."""
    asked, go_on = threading.Event(), threading.Event()

    def talk(task, agent) -> float:
        first = agent.ask(START)
        asked.set()
        go_on.wait()
        agent.ask([*START, {"role": "assistant", "content": first["content"] or ""}, {"role": "user", "content": "on"}])
        return 1.0

    await driver.environment.detach()
    addresses = ",".join(driver.run.folder.endpoint(name) for name in ("rollout", "rollout-1"))
    serving = asyncio.create_task(serve_async(talk, "talking", 2, addresses, driver.run.environment_key))
    try:
        await driver.dispatch(driver.execution, environment="talking")
        await driver.until(asked.is_set)
        driver.gateway.send_signal(signal.SIGKILL)
        await driver.gateway.wait()
        go_on.set()
        ending = await driver.ending()
    finally:
        go_on.set()
        await end(serving)
    assert (ending.ending, ending.attempt, ending.turns, ending.evaluation.outcome) == ("completed", 1, 2, 1.0)
    records = await driver.recorded(2)
    assert [record.call_index for record in records] == [0, 1]

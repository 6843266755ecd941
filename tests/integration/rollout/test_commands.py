"""Suspend, resume, void, release: through the real gateway, to environment processes (C2)."""

import asyncio
import signal
import threading

import pytest

from gyre.env import Environment, Score, StepResult, serve_async
from gyre.records import ExecutionEnded, ExecutionLeased, ExecutionResumed, ExecutionStarted, ExecutionSuspended
from tests.support import WAIT_S

pytestmark = pytest.mark.asyncio(loop_scope="module")

START = [{"role": "user", "content": "go"}]


def ask(client, text: str):
    return asyncio.ensure_future(
        client.chat.completions.create(model="policy", messages=[{"role": "user", "content": text}])
    )


async def heard(driver, kind: str):
    """The next message of a kind, whatever comes before it."""
    async with asyncio.timeout(WAIT_S):
        while (message := await driver.environment.inbox.get()).WhichOneof("body") != kind:
            pass
        return message


async def test_a_suspended_execution_waits_over_a_restart_of_the_gateway_and_goes_on_when_resumed(driver):
    """Its environment and attempt are kept; a call waits unanswered; voided at last, it ends with the turns it had made."""
    key, attempt = await driver.begin()
    client = driver.client(key, retries=20)
    await ask(client, "one")
    await driver.command(1, "suspend")
    assert (await heard(driver, "suspend")).suspend.reason == "because"
    fact = await driver.fact(lambda f: isinstance(f, ExecutionSuspended) and f.execution_id == driver.execution)
    assert (fact.attempt, fact.ordinal) == (attempt, 1)
    await driver.recorded(1)
    waiting = ask(client, "two")
    await asyncio.sleep(0.5)
    assert not waiting.done() and len(driver.records()) == 1

    await driver.environment.detach()
    await driver.restart_gateway(signal.SIGKILL)
    await driver.environment.attach()
    assert (await heard(driver, "suspend")).execution_id == driver.execution
    await asyncio.sleep(1.0)
    assert not waiting.done() and len(driver.records()) == 1

    await driver.command(2, "resume")
    await heard(driver, "resume")
    assert (await asyncio.wait_for(waiting, WAIT_S)).choices
    await driver.fact(lambda f: isinstance(f, ExecutionResumed) and f.execution_id == driver.execution)

    await driver.command(3, "void")
    assert "because" in (await heard(driver, "cancel")).cancel.reason
    ending = await driver.ending()
    assert (ending.ending, ending.attempt, ending.turns, ending.evaluation) == ("voided", attempt, 2, None)
    assert len(driver.records()) == 2 and ending.occupancy_s > 1.5


async def test_a_released_execution_is_given_out_as_the_next_attempt_and_the_old_one_counts_no_longer(driver):
    _, attempt = await driver.begin()
    await driver.command(1, "release")
    assert (await heard(driver, "cancel")).attempt == attempt
    assert (await heard(driver, "assignment")).attempt == attempt + 1
    name = await driver.environment.say(
        driver.execution, attempt, ended={"ending": "completed", "reason": "submitted", "external_calls": 0}
    )
    refusal = await heard(driver, "refused")
    assert refusal.request_id == name and "fenced" in refusal.refused.message
    await driver.fact(
        lambda f: isinstance(f, ExecutionLeased) and (f.execution_id, f.attempt) == (driver.execution, attempt + 1)
    )
    assert not [fact for fact in driver.about() if isinstance(fact, ExecutionEnded)]


async def test_what_is_queued_is_held_back_while_suspended_and_ends_at_once_when_voided(driver):
    """Nobody is attached. The first is voided by what the facts say of it, before the gateway has seen its task; the second waits at the gateway."""
    await driver.environment.detach()
    await driver.submitted()
    await driver.command(1, "void")
    ending = await driver.ending()
    assert (ending.ending, ending.attempt, ending.turns, ending.policy_version) == ("voided", 1, 0, 3)
    for index in (0, 1):
        await driver.dispatch(driver.name(index))

    await driver.command(1, "suspend", index=1)
    await driver.command(1, "void", index=2)
    await driver.fact(
        lambda f: isinstance(f, ExecutionEnded) and f.execution_id == driver.name(2)
    )  # so it knows of the word before
    await driver.environment.attach()
    await asyncio.sleep(1.0)
    assert driver.environment.assignments == {}
    await driver.command(2, "resume", index=1)
    assert (await heard(driver, "assignment")).execution_id == driver.name(1)
    await asyncio.sleep(0.5)
    assert list(driver.environment.assignments) == [driver.name(1)]
    assert not [fact for fact in driver.about() if isinstance(fact, ExecutionLeased)]


class Slow(Environment):
    """A world that takes its time to come up: until `may_start`."""

    name = "slow"
    may_start = threading.Event()

    def tools(self):
        return []

    def reset(self):
        self.may_start.wait(WAIT_S)
        return START

    def step(self, call):
        return StepResult(content="nothing", done=False)

    def score(self):
        return Score(outcome=0.5)


async def test_a_suspension_takes_nothing_from_the_wall_clock_of_an_environment_of_the_library(driver):
    """8 s of wall clock; suspended while the world comes up, and for longer than that in all."""
    served = asyncio.create_task(
        serve_async(
            Slow, name="slow", slots=1, address=driver.run.folder.endpoint("rollout"), key=driver.run.environment_key
        )
    )
    await driver.dispatch(driver.name(0), environment="slow", wall_s=8)
    await driver.fact(lambda f: isinstance(f, ExecutionLeased) and f.execution_id == driver.execution)
    await driver.submitted()
    await driver.command(1, "suspend")
    await driver.command(1, "void", index=1)
    await driver.fact(
        lambda f: isinstance(f, ExecutionEnded) and f.execution_id == driver.name(1)
    )  # it knows of the word before
    Slow.may_start.set()
    await driver.fact(lambda f: isinstance(f, ExecutionSuspended) and f.execution_id == driver.execution)
    started = await driver.fact(lambda f: isinstance(f, ExecutionStarted) and f.execution_id == driver.execution)
    await asyncio.sleep(8.5)
    assert not driver.records()
    await driver.command(2, "resume")
    ending = await driver.ending()
    assert ending.reason != "wall" and ending.turns == 1 and ending.at_s - started.at_s > 8
    served.cancel()
    await asyncio.gather(served, return_exceptions=True)


async def test_a_truncated_execution_is_told_until_it_ends_by_itself_over_a_restart_and_is_scored(driver):
    """C5: a suspended execution is told to finish: its pending call goes on, its environment hears Truncate, and again after the gateway was killed;
    its own ending counts: timed out, reason `truncated`, outcome .25, with the turn it had made."""
    key, attempt = await driver.begin()
    client = driver.client(key, retries=20)
    await ask(client, "one")
    await driver.command(1, "suspend")
    await driver.fact(lambda f: isinstance(f, ExecutionSuspended) and f.execution_id == driver.execution)
    await driver.command(2, "truncate")
    assert (await heard(driver, "truncate")).truncate.reason == "because"
    await driver.environment.detach()
    await driver.restart_gateway(signal.SIGKILL)
    await driver.environment.attach()
    assert (await heard(driver, "truncate")).execution_id == driver.execution
    evaluation = {"outcome": 0.25, "valid": True}
    said = {"ending": "timed_out", "reason": "truncated", "external_calls": 0, "evaluation": evaluation}
    await driver.environment.say(driver.execution, attempt, ended=said)
    ending = await driver.ending()
    assert (ending.ending, ending.reason, ending.attempt, ending.turns) == ("timed_out", "truncated", attempt, 1)
    assert ending.evaluation.valid and ending.evaluation.outcome == 0.25


async def test_what_was_not_begun_is_voided_when_it_is_truncated(driver):
    """C5: nobody is attached: nothing was done that could be scored, and the task is not given out when an environment comes."""
    await driver.environment.detach()
    await driver.submitted()
    await driver.dispatch(driver.name(0))
    await driver.command(1, "truncate")
    ending = await driver.ending()
    assert (ending.ending, ending.reason, ending.turns, ending.evaluation) == ("voided", "truncated", 0, None)
    await driver.environment.attach()
    await asyncio.sleep(0.5)
    assert driver.environment.assignments == {}

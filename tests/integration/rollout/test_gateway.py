"""The gateway as harnesses and environments see it: real processes, real bus, real cells (A6, B1, B2, C6)."""

import asyncio
import signal

import aiohttp
import openai
import pytest

from gyre.api.rollout.v1 import environments_pb2 as pb
from gyre.records import CallRecorded, ExecutionEnded, ExecutionLeased, ExecutionStarted, RoleChanged, array

pytestmark = pytest.mark.asyncio(loop_scope="module")

START = [{"role": "system", "content": "s"}, {"role": "user", "content": "go"}]
TOOLS = [
    {
        "type": "function",
        "function": {"name": "read_file", "parameters": {"type": "object", "properties": {"path": {}}}},
    }
]
GOOD = pb.Evaluation(
    outcome=1.0, valid=True, milestones={"m": True}, milestone_weights={"m": 0.3}, evidence_json='{"exit": 0}', tries=1
)


def said_back(message) -> dict:
    """The reply as a harness sends it back."""
    return message.model_dump(exclude_none=True)


async def test_an_execution_from_dispatch_to_its_ending(driver):
    """A1, B1, C6: lease, start, two calls, ending; books counted at the gateway; Ended sent twice is one fact."""
    key, attempt = await driver.begin()
    client = driver.client(key)
    first = await client.chat.completions.create(model="alias", messages=START, tools=TOOLS)
    messages = [*START, said_back(first.choices[0].message), {"role": "user", "content": "on"}]
    second = await client.chat.completions.create(model="another", messages=messages, tools=TOOLS)
    assert (
        second.usage.total_tokens
        == second.usage.prompt_tokens + second.usage.completion_tokens
        > first.usage.total_tokens
    )
    ended = pb.Ended(ending="completed", reason="submitted", evaluation=GOOD, external_calls=2)
    for _ in range(2):
        name = await driver.environment.say(driver.execution, attempt, ended=ended)
        assert (await driver.environment.next("accepted")).request_id == name
    ending = await driver.ending()
    await driver.run.heard_all()
    assert [type(fact) for fact in driver.about()] == [
        ExecutionLeased, ExecutionStarted, CallRecorded, CallRecorded, ExecutionEnded,
    ]  # fmt: skip
    records = driver.records()
    assert (ending.turns, ending.calls, ending.external_calls, ending.evaluation.outcome) == (2, 2, 2, 1.0)
    assert ending.tokens_sampled == sum(len(record.output_ids) // 4 for record in records)
    assert ending.occupancy_s == pytest.approx(ending.at_s - ending.started_at_s)
    first_ids, second_delta = array(records[0].output_ids, "int32"), array(records[1].prompt_delta, "int32")
    assert records[1].parent == records[0].call_id
    assert records[1].parent_tokens == records[0].prompt_tokens + len(first_ids)
    assert records[1].prompt_tokens == records[1].parent_tokens + len(second_delta)
    for record in records:
        size = len(record.output_ids)
        assert len(record.logprobs) == len(record.versions) == size
        assert set(array(record.versions, "int32")) == {0}
    with pytest.raises(openai.PermissionDeniedError) as refused:
        await client.chat.completions.create(model="alias", messages=START)
    assert refused.value.code == "execution_over"

    async def is_forgotten() -> bool:
        return (await driver.state()).sessions == 0

    await driver.until(is_forgotten)


async def test_a_streamed_reply_is_the_plain_reply_with_usage(driver):
    """litellm#24176; the same conversation and parameters are one call, so both forms can be compared."""
    key, _ = await driver.begin()
    client = driver.client(key)
    content, usage, finish = "", None, None
    stream = await client.chat.completions.create(
        model="m", messages=START, stream=True, stream_options={"include_usage": True}
    )
    async for chunk in stream:
        usage = chunk.usage or usage
        for choice in chunk.choices:
            content += choice.delta.content or ""
            finish = choice.finish_reason or finish
    plain = await client.chat.completions.create(model="m", messages=START)
    assert plain.choices[0].message.content == content
    assert (plain.choices[0].finish_reason, plain.usage.total_tokens) == (finish, usage.total_tokens)
    assert len(await driver.recorded(1)) == 1, "the second was a retry: equal histories never fork"


async def test_what_is_wrong_is_said_in_openais_words(driver):
    """Never a 500 for bad input; a key is worthless for any other execution."""
    key, _ = await driver.begin(turns_max=1)
    client = driver.client(key)
    with pytest.raises(openai.AuthenticationError):
        await driver.client(key[:-2] + "xx").chat.completions.create(model="m", messages=START)
    with pytest.raises(openai.AuthenticationError):
        await driver.client("gyre-e30.AAAA").models.list()
    assert [entry.id for entry in (await client.models.list()).data] == ["policy"]
    with pytest.raises(openai.BadRequestError) as error:
        await client.chat.completions.create(model="m", messages=[{"role": "user", "content": "hello " * 600}])
    assert error.value.code == "context_length_exceeded"
    with pytest.raises(openai.BadRequestError) as error:
        await client.chat.completions.create(model="m", messages=START, n=2)
    assert error.value.param == "n"
    with pytest.raises(openai.NotFoundError):
        await client.embeddings.create(model="m", input="x")
    with pytest.raises(openai.APIStatusError) as error:
        await client.chat.completions.create(model="m", messages=[{"role": "user", "content": "x" * 70_000}])
    assert error.value.status_code == 413
    url, headers = (
        f"http://{driver.run.folder.endpoint('gateway')}/v1/chat/completions",
        {"authorization": f"Bearer {key}"},
    )
    async with aiohttp.ClientSession(headers=headers) as http:
        for body in (
            b"",
            b"[]",
            b"{",
            b'{"messages": 3}',
            b"[" * 50_000,
            b'{"messages": [{"role": "tool"}]}',
            b"\xff\xfe",
        ):
            async with http.post(url, data=body) as reply:
                assert reply.status == 400, (body[:20], await reply.text())
                assert (await reply.json())["error"]["message"]
        async with http.get(url) as reply:
            assert reply.status == 405
    await client.chat.completions.create(model="m", messages=START)
    with pytest.raises(openai.BadRequestError) as error:
        await client.chat.completions.create(model="m", messages=[*START, {"role": "user", "content": "more"}])
    assert error.value.code == "turns_exceeded"


async def test_an_execution_that_used_up_its_tokens_is_ended_for_that(driver):
    """B4, C6: the call is refused with the limit's name, and the environment is told to stop, whatever its harness makes of the refusal."""
    key, _ = await driver.begin(tokens_max=1)
    client = driver.client(key)
    first = await client.chat.completions.create(model="m", messages=START)
    assert first.usage.completion_tokens == 1
    with pytest.raises(openai.BadRequestError) as error:
        await client.chat.completions.create(model="m", messages=[*START, {"role": "user", "content": "more"}])
    assert error.value.code == "tokens_exceeded"
    told = await driver.environment.next("truncate")
    assert (told.execution_id, told.truncate.reason) == (driver.execution, "tokens")


async def test_calls_move_to_another_cell_when_theirs_goes_to_training(driver):
    """A6: nothing is interrupted and the harness notices nothing; tokens of both cells are one output."""
    clients = [driver.client((await driver.begin(index, output_tokens_max=450))[0]) for index in range(6)]
    calls = [client.chat.completions.create(model="m", messages=START, stream=True) for client in clients]
    chunks = [aiter(stream) for stream in await asyncio.gather(*calls)]
    await asyncio.gather(*(anext(one) for one in chunks))
    # It stands still from now until it is asked, so that its calls are not over by then.
    before = len(driver.run.of(RoleChanged, cell="cell-0", phase="requested"))
    driver.cells[0].send_signal(signal.SIGSTOP)
    leaving = asyncio.create_task(driver.to_training("cell-0"))
    await driver.until(lambda: len(driver.run.of(RoleChanged, cell="cell-0", phase="requested")) > before)
    for _ in range(5):  # the gateway's loop turns: it has heard of it, too, and has asked the cell
        await driver.state()
    driver.cells[0].send_signal(signal.SIGCONT)
    drained = await leaving
    assert drained.moved_calls >= 1
    for one in chunks:
        last = [chunk async for chunk in one][-1]
        assert last.choices[0].finish_reason in ("stop", "length", "tool_calls")
    moved = [record for index in range(6) for record in await driver.recorded(1, index) if len(record.cells) > 1]
    assert len(moved) == drained.moved_calls
    assert all(record.cells == ["cell-0", "cell-1"] for record in moved)


async def test_calls_of_a_whole_pool_wait_with_the_tokens_they_have(driver):
    """A9, colocate: all cells leave at once; the harness sees a pause in its stream and no error, and its call goes on where it was."""
    clients = [driver.client((await driver.begin(index, output_tokens_max=450))[0]) for index in range(4)]
    calls = [client.chat.completions.create(model="m", messages=START, stream=True) for client in clients]
    chunks = [aiter(stream) for stream in await asyncio.gather(*calls)]
    await asyncio.gather(*(anext(one) for one in chunks))
    await asyncio.gather(driver.to_training("cell-0"), driver.to_training("cell-1"))
    state = await driver.state()
    assert state.calls_running == 0
    await asyncio.gather(driver.to_rollout("cell-0"), driver.to_rollout("cell-1"))
    for one in chunks:
        last = [chunk async for chunk in one][-1]
        assert last.choices[0].finish_reason in ("stop", "length", "tool_calls")
    records = [record for index in range(4) for record in await driver.recorded(1, index)]
    assert sum(record.wait_s > 0 for record in records) >= state.calls_waiting
    assert all(len(array(record.output_ids, "int32")) == len(array(record.logprobs, "float32")) for record in records)


async def test_calls_wait_while_no_cell_serves(driver):
    """A6: with every cell in training a call waits, and goes on when one is back."""
    key, _ = await driver.begin()
    await driver.to_training("cell-0")
    await driver.to_training("cell-1")
    call = asyncio.create_task(driver.client(key).chat.completions.create(model="m", messages=START))
    await driver.calls_waiting(1)
    await asyncio.sleep(0.5)
    assert not call.done()
    await driver.to_rollout("cell-1")
    await call
    assert (await driver.recorded(1))[0].wait_s >= 0.4


async def test_a_gateway_killed_in_mid_call_finds_the_same_tokens_again(driver):
    """State and restarts: the environment attaches again, its attempt goes on, the retried call samples the same tokens
    (same seed, same prompt, same weights) and the call before it is still the prefix."""
    key, attempt = await driver.begin(output_tokens_max=300)
    client = driver.client(key)
    first = await client.chat.completions.create(model="m", messages=START, max_tokens=8)
    messages = [*START, said_back(first.choices[0].message), {"role": "user", "content": "on"}]
    stream = await client.chat.completions.create(model="m", messages=messages, stream=True)
    seen = ""
    async for chunk in stream:
        seen += chunk.choices[0].delta.content or ""
        if len(seen) > 10:
            break
    await driver.environment.detach()
    await driver.restart_gateway(signal.SIGKILL)
    welcome = await driver.environment.attach()
    assert not welcome.welcome.unknown
    again = await driver.client(key, retries=20).chat.completions.create(model="m", messages=messages)
    assert again.choices[0].message.content.startswith(seen)
    records = await driver.recorded(2)
    assert [record.call_index for record in records] == [0, 1]
    assert records[1].parent == records[0].call_id
    await driver.environment.say(
        driver.execution, attempt, ended=pb.Ended(ending="completed", reason="submitted", evaluation=GOOD)
    )
    ending = await driver.ending()
    assert (ending.attempt, ending.turns, ending.ending) == (attempt, 2, "completed")
    assert len([fact for fact in driver.about() if isinstance(fact, ExecutionLeased)]) == 1, "the same attempt went on"
    assert ending.occupancy_s == pytest.approx(ending.at_s - ending.started_at_s)


async def test_an_abandoned_call_is_recorded_and_a_quick_retry_joins_its_call(driver):
    """AReaL#1498."""
    key, _ = await driver.begin(output_tokens_max=400)
    client = driver.client(key)
    await driver.to_training("cell-0")
    await driver.to_training("cell-1")
    with pytest.raises(openai.APITimeoutError):
        await client.with_options(timeout=0.15).chat.completions.create(model="m", messages=START)
    retry = asyncio.create_task(client.chat.completions.create(model="m", messages=START))
    await driver.calls_waiting(1)
    await driver.to_rollout("cell-1")
    await retry
    assert [record.call_index for record in await driver.recorded(1)] == [0]
    await driver.to_training("cell-1")
    other = [*START, {"role": "user", "content": "more"}]
    with pytest.raises(openai.APITimeoutError):
        await client.with_options(timeout=0.15).chat.completions.create(model="m", messages=other)
    await driver.calls_waiting(0)  # nobody waits for it any more


async def test_an_environment_that_dies_gives_its_executions_to_the_next(driver):
    """NeMo-RL#3599, OpenEnv#1143: the next attempt runs elsewhere, and the older one's words are refused."""
    key, attempt = await driver.begin()
    await driver.environment.detach()
    other = type(driver.environment)(driver.run, "other", driver.environment.name)
    await other.attach()
    _, second = await other.begin(driver.execution)
    assert second == attempt + 1
    with pytest.raises(openai.PermissionDeniedError):
        await driver.client(key).chat.completions.create(model="m", messages=START)
    back = await driver.environment.attach()
    assert [(r.execution_id, r.attempt) for r in back.welcome.unknown] == [(driver.execution, attempt)]
    await driver.environment.say(driver.execution, attempt, ended=pb.Ended(ending="completed", reason="submitted"))
    refused = await driver.environment.next("refused")
    assert (refused.attempt, refused.refused.code) == (attempt, "conflict")
    await other.detach()


async def test_endings_that_break_the_contract_end_the_execution_as_failed(driver):
    """NeMo-RL#3470: rubbish is an ending of its own and never a reward."""
    _, attempt = await driver.begin()
    bad = pb.Evaluation(outcome=float("nan"), valid=True)
    await driver.environment.say(
        driver.execution, attempt, ended=pb.Ended(ending="completed", reason="submitted", evaluation=bad)
    )
    ending = await driver.ending()
    assert (ending.ending, ending.reason, ending.evaluation) == ("failed", "environment_invalid", None)
    assert "outcome" in ending.detail


async def test_an_environment_that_hangs_is_ended_by_the_server(driver):
    """C6: wall 0.5 s and 5 s of grace; occupancy runs to the ending."""
    await driver.begin(wall_s=0.5)
    ending = await driver.ending()
    assert (ending.ending, ending.reason) == ("failed", "environment_hung")
    assert ending.occupancy_s >= 5.5
    assert (await driver.environment.next("cancel")).execution_id == driver.execution

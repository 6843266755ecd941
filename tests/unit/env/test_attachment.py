"""The stream to the gateway: assignments, reconnects, cancels; against a double of the gateway."""

import asyncio
import contextlib
import threading

import pytest

from gyre.env.attachment import Attachment
from gyre.env.driven import FunctionEnvironment
from gyre.env.episode import Episode
from gyre.errors import InvalidInput, Unavailable
from gyre.tasks import end
from tests.support import WAIT_S, taken_port, until
from tests.unit.env.doubles import ChatDouble, Counter, GatewayDouble, serve_double, tool_reply


@contextlib.asynccontextmanager
async def attached(gateway: GatewayDouble, factory=Counter, slots: int = 4):
    server = await serve_double(gateway)
    attachment = Attachment(factory, "counter", slots, f"127.0.0.1:{server.port}")
    serving = asyncio.create_task(attachment.serve())
    try:
        yield await asyncio.wait_for(gateway.hellos.get(), WAIT_S)
    finally:
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
        await server.stop(0)


async def received(gateway: GatewayDouble, timeout_s: float = WAIT_S):
    return await asyncio.wait_for(gateway.received.get(), timeout_s)


async def test_an_assignment_is_run_and_its_start_and_end_are_told():
    """The messages name execution and attempt, so nothing late is taken for something else (OpenEnv#1143)."""
    async with ChatDouble(lambda body, n: tool_reply()) as chat:
        gateway = GatewayDouble(chat.base)
        async with attached(gateway) as hello:
            assert (hello.environment, hello.slots, list(hello.running)) == ("counter", 4, [])
            gateway.assign("g000001-e0", 2, traceparent="00-" + "1" * 32 + "-" + "2" * 16 + "-01")
            started, ended = await received(gateway), await received(gateway)
            assert started.WhichOneof("body") == "started" and ended.WhichOneof("body") == "ended"
            assert (ended.execution_id, ended.attempt) == ("g000001-e0", 2)
            assert (ended.ended.ending, ended.ended.reason, ended.ended.external_calls) == ("completed", "submitted", 3)
            assert ended.ended.evaluation.outcome == 1.0 and ended.ended.evaluation.milestone_weights["counted"] == 0.1
            assert chat.requests[0]["max_tokens"] == 16 and chat.headers[0]["traceparent"].startswith("00-1111")


async def test_an_execution_of_many_calls_at_once_holds_up_no_other():
    """Nor itself: they may wait for hours, where it is suspended. How many there may be says the gateway."""
    release = asyncio.Event()

    async def answer(body, n):
        await release.wait()
        return {"content": "yes"}

    async def ask_much(task, agent) -> float:
        said = await asyncio.gather(*(agent.chat([{"role": "user", "content": f"{n}?"}]) for n in range(12)))
        return float(len(said) == 12)

    async with ChatDouble(answer) as chat:
        gateway = GatewayDouble(chat.base)
        async with attached(gateway, lambda task: FunctionEnvironment(ask_much, task), slots=1):
            gateway.assign()
            await received(gateway)
            await until(lambda: len(chat.requests) == 12)
            release.set()
            assert (await received(gateway)).ended.evaluation.outcome == 1.0


async def test_a_broken_stream_leaves_executions_running_and_repeats_what_was_not_accepted():
    """The execution runs on over the break, the second Hello names it, and `Started` comes again under its old request id."""
    release = asyncio.Event()

    async def answer(body, n):
        await release.wait()
        return tool_reply()

    async with ChatDouble(answer) as chat:
        gateway = GatewayDouble(chat.base)
        gateway.accepts = False
        async with attached(gateway):
            gateway.assign()
            first = await received(gateway)
            gateway.drop()
            hello = await asyncio.wait_for(gateway.hellos.get(), WAIT_S)
            assert [(r.execution_id, r.attempt) for r in hello.running] == [("g000001-e0", 1)]
            again = await received(gateway)
            assert again.request_id == first.request_id and again.WhichOneof("body") == "started"
            gateway.accepts = True
            release.set()
            assert (await received(gateway)).ended.reason == "submitted"
            assert len(chat.requests) == 3


async def test_an_ending_that_was_not_accepted_counts_as_running_and_comes_again():
    async with ChatDouble(lambda body, n: tool_reply()) as chat:
        gateway = GatewayDouble(chat.base)
        gateway.accepts = False
        async with attached(gateway):
            gateway.assign()
            sent = [await received(gateway), await received(gateway)]
            gateway.drop()
            hello = await asyncio.wait_for(gateway.hellos.get(), WAIT_S)
            assert [r.execution_id for r in hello.running] == ["g000001-e0"]
            gateway.accepts = True
            again = [await received(gateway), await received(gateway)]
            assert [m.request_id for m in again] == [m.request_id for m in sent]
            gateway.drop()
            assert not list((await asyncio.wait_for(gateway.hellos.get(), WAIT_S)).running)


async def test_what_is_said_before_a_welcome_comes_after_what_was_said_on_the_stream_before():
    """An Ended before its Started breaks the contract, and the work would count as failed."""
    may_answer = threading.Event()

    async def answer(body, n):
        await asyncio.to_thread(may_answer.wait, WAIT_S)
        return tool_reply()

    async with ChatDouble(answer) as chat:
        gateway = GatewayDouble(chat.base)
        gateway.accepts = False
        server = await serve_double(gateway)
        attachment = Attachment(Counter, "counter", 4, f"127.0.0.1:{server.port}")
        serving = asyncio.create_task(attachment.serve())
        await asyncio.wait_for(gateway.hellos.get(), WAIT_S)
        gateway.assign()
        first = await received(gateway)
        gateway.welcomes.clear()
        gateway.drop()
        await asyncio.wait_for(gateway.hellos.get(), WAIT_S)
        may_answer.set()
        await until(lambda: len(attachment._unaccepted) == 2)
        gateway.welcomes.set()
        again = [await received(gateway), await received(gateway)]
        assert [message.WhichOneof("body") for message in again] == ["started", "ended"]
        assert again[0].request_id == first.request_id
        await end(serving)
        await server.stop(0)


async def test_what_the_gateway_no_longer_knows_is_stopped():
    """A cancel closes the environment and says nothing more; heartbeats go on."""

    async def silent(body, n):
        await asyncio.sleep(600)

    Counter.closed = 0
    async with ChatDouble(silent) as chat:
        gateway = GatewayDouble(chat.base)
        async with attached(gateway):
            gateway.assign()
            await received(gateway)
            gateway.cancel("g000001-e0")
            await until(lambda: Counter.closed)
            beats = gateway.beats
            await until(lambda: gateway.beats > beats)
            assert Counter.closed == 1 and gateway.received.empty()


async def test_late_words_about_an_older_attempt_change_nothing_of_the_newer_one():
    """OpenEnv#1143: a late assignment, cancel, truncation or acceptance of attempt 1 is not taken for attempt 2's, which runs to its end."""
    release = asyncio.Event()

    async def answer(body, n):
        await release.wait()
        return tool_reply()

    async with ChatDouble(answer) as chat:
        gateway = GatewayDouble(chat.base)
        async with attached(gateway):
            gateway.assign(attempt=2)
            await received(gateway)
            gateway.assign(attempt=1)
            gateway.cancel("g000001-e0", attempt=1)
            gateway.truncate("g000001-e0", attempt=1)
            gateway.assign("g000002-e0")  # behind them on the stream: when it has started, the others were read
            assert (await received(gateway)).execution_id == "g000002-e0"
            release.set()
            ended = [await received(gateway), await received(gateway)]
            assert {(m.execution_id, m.attempt) for m in ended} == {("g000001-e0", 2), ("g000002-e0", 1)}
            assert {m.ended.reason for m in ended} == {"submitted"} and gateway.received.empty()


async def test_a_newer_attempt_fences_the_older_one():
    async def silent(body, n):
        await asyncio.sleep(600)

    Counter.closed = 0
    async with ChatDouble(silent) as chat:
        gateway = GatewayDouble(chat.base)
        async with attached(gateway):
            gateway.assign(attempt=1)
            await received(gateway)
            gateway.assign(attempt=2)
            gateway.assign(attempt=2)  # said twice: runs once
            assert (await received(gateway)).attempt == 2
            await until(lambda: Counter.closed)
            assert Counter.closed == 1 and gateway.received.empty()


async def test_a_wrong_key_is_an_error_and_not_a_loop():
    """Bad input."""
    server = await serve_double(GatewayDouble(), keys={"service": "s" * 20, "environment": "e" * 20})
    with pytest.raises(Unavailable, match="wrong or missing key"):
        await asyncio.wait_for(Attachment(Counter, "counter", 1, f"127.0.0.1:{server.port}", "wrong").serve(), WAIT_S)
    await server.stop(0)


async def test_what_is_truncated_while_it_asks_the_model_is_scored_on_what_it_left_behind():
    """C5, B4: one of three counts is done, the second answer never comes, 60 s of wall clock are left. Told that its time is up it ends at once as
    timed out, `truncated`, with the milestone it reached; told again it says nothing more."""

    asked = asyncio.Event()

    async def slow(body, n):
        if len(body["messages"]) > 1:
            asked.set()
            await asyncio.sleep(600)
        return tool_reply()

    async with ChatDouble(slow) as chat:
        gateway = GatewayDouble(chat.base)
        async with attached(gateway):
            gateway.assign()
            await received(gateway)
            await asyncio.wait_for(asked.wait(), WAIT_S)
            gateway.truncate("g000001-e0")
            gateway.truncate("g000001-e0")
            ended = (await received(gateway)).ended
            assert (ended.ending, ended.reason, ended.external_calls) == ("timed_out", "truncated", 1)
            assert ended.evaluation.valid and dict(ended.evaluation.milestones) == {"counted": True}
            gateway.truncate("g000001-e0")
            await asyncio.sleep(0.05)
            assert gateway.received.empty()


async def test_a_tool_call_in_hand_has_its_grace_when_the_execution_is_truncated():
    """C5: a step that returns within the grace counts; the model is not asked again."""
    stepping, go_on = threading.Event(), threading.Event()

    class Slow(Counter):
        def step(self, call):
            stepping.set()
            go_on.wait(WAIT_S)
            return super().step(call)

    async with ChatDouble(lambda body, n: tool_reply()) as chat:
        gateway = GatewayDouble(chat.base)
        async with attached(gateway, Slow):
            gateway.assign()
            await received(gateway)
            await asyncio.to_thread(stepping.wait, WAIT_S)
            gateway.truncate("g000001-e0")
            gateway.assign(
                "g000002-e0", api_key="key-2"
            )  # behind it on the stream: when it has started, the other was read
            assert (await received(gateway)).WhichOneof("body") == "started"
            go_on.set()
            said = [await received(gateway), await received(gateway)]
            (ended,) = [message.ended for message in said if message.execution_id == "g000001-e0"]
            asked = [headers for headers in chat.headers if headers["Authorization"] == "Bearer key-1"]
            assert (ended.reason, ended.external_calls, len(asked)) == ("truncated", 1, 1)


async def test_of_several_gateways_the_next_is_attached_to_and_asked_when_one_is_lost():
    """The first gateway goes; its model call never comes back. The execution runs on at the second: the Hello there names it, and the call that
    waited at the first is made again there."""
    asked = asyncio.Event()

    async def silent(body, n):
        asked.set()
        await asyncio.sleep(600)

    async with ChatDouble(silent) as lost, ChatDouble(lambda body, n: tool_reply()) as chat:
        first, second = GatewayDouble(lost.base), GatewayDouble(chat.base)
        servers = [await serve_double(first), await serve_double(second)]
        addresses = ", ".join(f"127.0.0.1:{server.port}" for server in servers)
        serving = asyncio.create_task(Attachment(Counter, "counter", 4, addresses).serve())
        try:
            await asyncio.wait_for(first.hellos.get(), WAIT_S)
            first.assign()
            assert (await received(first)).WhichOneof("body") == "started"
            await asyncio.wait_for(asked.wait(), WAIT_S)
            await servers[0].stop(0)
            hello = await asyncio.wait_for(second.hellos.get(), WAIT_S)
            assert [(r.execution_id, r.attempt) for r in hello.running] == [("g000001-e0", 1)]
            ended = await received(second)
            assert (ended.ended.ending, ended.ended.reason) == ("completed", "submitted")
            assert len(lost.requests) == 1 and len(chat.requests) == 3
        finally:
            await end(serving)
            for server in servers:
                await server.stop(0)


async def test_a_gateway_that_is_not_there_is_passed_over():
    """The first address is nobody's: the second is attached to after the time to connect, whatever is at the first."""
    async with ChatDouble(lambda body, n: tool_reply()) as chat:
        gateway = GatewayDouble(chat.base)
        server = await serve_double(gateway)
        with taken_port(before=1) as port:
            addresses = f"127.0.0.1:{port - 1},127.0.0.1:{server.port}"
            serving = asyncio.create_task(Attachment(Counter, "counter", 4, addresses).serve())
            try:
                assert (await asyncio.wait_for(gateway.hellos.get(), WAIT_S)).environment == "counter"
            finally:
                await end(serving)
                await server.stop(0)


@pytest.mark.parametrize("said", ["", " , "])
def test_no_address_is_refused(said):
    with pytest.raises(InvalidInput, match="host:port"):
        Attachment(Counter, "counter", 4, said)


async def test_an_ending_that_cannot_be_sent_is_an_error_of_its_execution(monkeypatch):
    """Whatever went wrong in a way that nobody thought of: something is told, and the next execution is served."""

    async def rubbish(self) -> str:
        return "no ending"

    async with ChatDouble(lambda body, n: tool_reply()) as chat:
        gateway = GatewayDouble(chat.base)
        async with attached(gateway):
            with monkeypatch.context() as patched:
                patched.setattr(Episode, "run", rubbish)
                gateway.assign()
                broken = await received(gateway)
            assert (broken.ended.ending, broken.ended.reason) == ("failed", "environment_error")
            assert "'str' object has no attribute 'ending'" in broken.ended.detail
            gateway.assign("g000001-e1")
            assert (await received(gateway)).WhichOneof("body") == "started"
            assert (await received(gateway)).ended.ending == "completed"

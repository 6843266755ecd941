"""The bus on a real nats-server: order, durability through kill -9, leases, least privilege."""

import asyncio
import os
import signal
import time
from typing import ClassVar

import msgspec
import pytest
from nats.aio.msg import Msg
from nats.errors import NoRespondersError
from nats.errors import TimeoutError as NotAnswered

from gyre import records as r
from gyre.bus import work
from gyre.bus.hearing import hear
from gyre.bus.pull import Pull
from gyre.bus.server import MAX_PAYLOAD_BYTES
from gyre.bus.subjects import subject_of
from gyre.errors import InvalidInput, Unavailable
from gyre.records.call import RECORD_BYTES, TEXT_BYTES, output_room
from tests.support import TestRun, until


def opened(step: int) -> r.StepOpened:
    return r.StepOpened(step=step, burst=0, at_s=time.time())


def dispatched(execution: str) -> r.TaskDispatched:
    limits = r.Limits(wall_s=1, turns_max=1, context_tokens_max=1, output_tokens_max=1)
    task = r.TaskSpec(task_id="t", task_type="x", environment="e", seed=1, limits=limits)
    return r.TaskDispatched(
        execution_id=execution, group_id="g000001", member=0, task=task, tier="all", policy_version=0, seed=1
    )


async def test_a_follower_sees_every_fact_once_in_order_through_a_killed_server(tmp_path):
    """E: NATS killed and restarted: publishers wait, followers go on, nothing is lost or repeated."""
    async with TestRun(tmp_path) as run:
        trainer, operator = await run.bus("trainer"), await run.bus("operator")
        seen: list[int] = []

        async def follow() -> None:
            async for fact, _ in operator.follow([r.StepOpened]):
                seen.append(fact.step)

        following = asyncio.create_task(follow())
        for step in range(3):
            await trainer.publish(opened(step))
        await until(lambda: len(seen) == 3)
        os.kill(run.nats.process.pid, signal.SIGKILL)
        await run.nats.process.wait()
        publishing = asyncio.create_task(trainer.publish(opened(3)))
        await asyncio.sleep(0.3)
        await run.nats.start()
        await publishing
        await trainer.publish(opened(3))
        await trainer.publish(opened(4))
        await until(lambda: 4 in seen)
        following.cancel()
        assert seen == [0, 1, 2, 3, 4]


async def test_what_is_given_has_left_and_its_answer_is_its_place_in_the_stream(tmp_path):
    """B1: a reply waits for nothing but the server; a repeated record is the stored one, a subject that no stream takes is said so."""
    async with TestRun(tmp_path) as run:
        trainer = await run.bus("trainer")
        first = await trainer.publish(opened(0))
        stored = await trainer.give(opened(1))
        assert trainer.client.pending_data_size == 0, "it left before the loop had another turn"
        assert await stored == first + 1
        assert await trainer.publish(opened(1)) == first + 1
        subject = subject_of(trainer.run, opened(2))
        late = await trainer.publishing.give(subject, r.encode(opened(2)), {}, 0.0)
        with pytest.raises(NotAnswered):
            await late
        nowhere = await trainer.publishing.give(subject, r.encode(opened(2)), {}, 3.0)
        (name,) = trainer.publishing._asked
        nobody = Msg(
            _client=trainer.client, subject=trainer.publishing._inbox + name, data=b"", headers={"Status": "503"}
        )
        trainer.publishing._come(nobody)
        with pytest.raises(NoRespondersError):
            await nowhere
        await until(lambda: not trainer.publishing._asked)


async def test_one_that_cannot_take_a_message_ends_nobody_elses_hearing(tmp_path):
    """B1: messages are told where the connection is read."""
    async with TestRun(tmp_path) as run:
        bus, taken = await run.bus("trainer"), list[bytes]()

        def take(message: Msg) -> None:
            if message.data == b"odd":
                raise ValueError
            taken.append(message.data)

        inbox = bus.client.new_inbox()
        heard = await hear(bus.client, inbox, take)
        for data in (b"a", b"odd", b"b"):
            await bus.client._process_msg(heard._id, inbox.encode(), b"", data, b"")
        assert taken == [b"a", b"b"]
        assert heard._pending_size == 0, "the client counts what lies in its queue, and throws away beyond its limit"
        await bus.publish(opened(0))
        await heard.unsubscribe()
        await bus.client._process_msg(heard._id, inbox.encode(), b"", b"c", b"")
        assert taken == [b"a", b"b"]


async def test_unacknowledged_work_comes_again_with_a_higher_delivery_count(tmp_path):
    """C2: the lease. Silent for ack_wait → the next attempt; in_progress keeps it."""
    async with TestRun(tmp_path) as run:
        scheduler, gateway = await run.bus("scheduler"), await run.bus("gateway")
        await scheduler.publish(dispatched("g000001-e0"))
        queue = work.tasks(gateway, ack_wait_s=2.0, max_ack_pending=10, max_deliver=50)
        said_s, silent_s = time.monotonic(), 0.0
        first = await until(lambda: queue.next(1.0))
        assert first.record.execution_id == "g000001-e0" and first.deliveries == 1
        for _ in range(8):
            await asyncio.sleep(0.4)
            before_s, said_s = said_s, time.monotonic()
            await first.in_progress()
            await gateway.client.flush(60)
            silent_s = max(silent_s, time.monotonic() - before_s)
        other = await queue.next(0.2)
        silent_s = max(silent_s, time.monotonic() - said_s)
        is_kept = silent_s < 1.9  # a machine that stood still for longer has let it go
        assert not is_kept or other is None, "a lease that is kept alive is given to nobody else"
        second = other or await until(lambda: queue.next(1.0))
        assert second.deliveries == 2 or not is_kept
        await second.ack_confirmed(60.0)
        assert await queue.next(2.5) is None


async def test_a_service_may_speak_only_its_own_subjects(tmp_path):
    """E (security): least privilege on the bus."""
    async with TestRun(tmp_path) as run:
        trainer = await run.bus("trainer")
        with pytest.raises(Unavailable):
            await trainer.publish(r.RunStarted(steps=1, fingerprint="", at_s=0.0), deadline_s=0.5)
        await trainer.publish(opened(0))


async def test_a_service_hears_only_what_is_sent_to_it(tmp_path):
    """E (security): answers and deliveries, a call's record or a task with its payload among them, come to whom they are for."""
    async with TestRun(tmp_path) as run:
        trainer, ledger, operator = await run.bus("trainer"), await run.bus("ledger"), await run.bus("operator")
        heard: list[str] = []

        async def listen(message: Msg) -> None:
            heard.append(message.subject)

        for subject in ("_INBOX.>", "_INBOX_trainer.>", "_INBOX_operator.>", "*.>", ">"):
            await ledger.client.subscribe(subject, cb=listen)
        await ledger.client.flush()
        await trainer.publish(opened(0))
        async for fact, _ in operator.follow([r.StepOpened]):
            assert fact.step == 0
            break
        await ledger.client.flush()
        assert heard == []
        async for fact, _ in ledger.follow([r.StepOpened]):
            assert fact.step == 0
            break


async def test_a_durable_reader_gets_again_what_it_did_not_acknowledge(tmp_path):
    """C6: a fact is acknowledged when it is in the ledger, not before."""
    async with TestRun(tmp_path) as run:
        trainer, ledger = await run.bus("trainer"), await run.bus("ledger")
        for step in range(3):
            await trainer.publish(opened(step))
        async for delivery in ledger.durable("ledger", [r.StepOpened], ack_wait_s=3.0):
            if delivery.record.step == 2:
                break
            await delivery.ack_confirmed()
        again = []
        async for delivery in ledger.durable("ledger", [r.StepOpened], ack_wait_s=3.0):
            again.append(delivery.record.step)
            await delivery.ack_confirmed()
            break
        assert again == [2]


async def test_poison_is_set_aside_with_its_reason_and_the_rest_goes_on(tmp_path):
    """E: a message that cannot be understood blocks nobody."""
    async with TestRun(tmp_path) as run:
        trainer, operator = await run.bus("trainer"), await run.bus("operator")
        await trainer.js.publish("gyre.v1.t.step.opened.0", b"rubbish")
        await trainer.publish(opened(1))
        reader = await run.bus("ledger")
        async for delivery in reader.durable("ledger", [r.StepOpened]):
            assert delivery.record.step == 1
            break
        dead = await operator.js.get_last_msg("GYRE_DEAD", "gyre.v1.t.dead.ledger")
        assert dead.data == b"rubbish" and "not a record" in dead.headers["Gyre-Reason"]


async def test_what_the_bus_cannot_take_is_an_error_at_once(tmp_path):
    """E: larger than the server's limit → the blob store, said in the error."""
    async with TestRun(tmp_path) as run:
        gateway = await run.bus("gateway")
        with pytest.raises(InvalidInput, match="blob store"):
            await gateway.publish(r.AlarmRaised(kind="big", message="x" * MAX_PAYLOAD_BYTES, service="t", at_s=0.0))


async def test_the_largest_record_of_a_call_with_a_million_tokens_of_prompt_fits(tmp_path):
    """B1: a prompt of a million tokens that has nothing in common with another, and as many sampled tokens, of tool calls, as
    `output_room` allows: the bus takes the record and gives it back as it was; what uses up the reserve is refused."""
    prompt = 1_000_000
    room = output_room(prompt, MAX_PAYLOAD_BYTES)
    assert room > 200_000
    record = r.CallRecorded(
        call_id="g000001-e0-a1-c000001", execution_id="g000001-e0", group_id="g000001", attempt=1, call_index=1, purpose="train",
        parent="", parent_tokens=0, prompt_delta=bytes(4 * prompt), prompt_tokens=prompt, output_ids=bytes(4 * room),
        logprobs=bytes(4 * room), versions=bytes(4 * room), finish_reason="tool_calls", role="main",
        sampling=r.Sampling(temperature=1.0, top_p=1.0, max_tokens=room, seed=1), tool_payloads={"t": "x" * (TEXT_BYTES * room)},
    )  # fmt: skip
    async with TestRun(tmp_path) as run:
        gateway = await run.bus("gateway")
        await gateway.publish(record)
        async for fact, _ in run.operator.follow([r.CallRecorded]):
            assert fact == record
            break
        larger = msgspec.structs.replace(
            record, call_id="g000001-e0-a1-c000002", prompt_delta=bytes(4 * prompt + RECORD_BYTES)
        )
        with pytest.raises(InvalidInput, match="the bus takes"):
            await gateway.publish(larger)


async def test_a_reader_of_many_large_records_loses_none(tmp_path):
    """E: 20 records of 7 MiB are more than the client holds for one reader (128 MiB): a request stops at half of that, and the next goes on."""
    records = [
        r.AlarmRaised(kind=f"big-{number}", message="x" * (7 * 2**20), service="t", at_s=number) for number in range(20)
    ]
    async with TestRun(tmp_path) as run:
        gateway, seen = await run.bus("gateway"), []
        for record in records:
            await gateway.publish(record)
        async for fact, _ in run.operator.follow([r.AlarmRaised]):
            seen.append(fact.kind)
            if fact.kind == records[-1].kind:
                break
            if len(seen) == 1:
                await asyncio.sleep(2.0)  # a slow reader: what was asked for arrives meanwhile
    assert seen == [record.kind for record in records]


async def test_a_reader_that_is_cancelled_as_a_message_comes_ends_and_the_message_stays():
    """E: a reader that went on would never end."""

    class Connection:
        stats: ClassVar = {"reconnects": 0}
        is_closed = False

        async def publish(self, *_, **__): ...

    pull = Pull(Connection(), "S", "c", 1)
    read = []

    async def reading():
        while True:
            read.append(await pull.next())

    task = asyncio.create_task(reading())
    await asyncio.sleep(0)
    pull._came.put_nowait(Msg(None, data=b"x"))
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled() and not read
    assert (await pull.next()).data == b"x"


async def test_a_reader_with_a_heap_of_messages_lets_others_have_their_turn():
    """E: heartbeats and leases stand on the same event loop."""

    class Connection:
        stats: ClassVar = {"reconnects": 0}
        is_closed = False

        async def publish(self, *_, **__): ...

    pull, turns = Pull(Connection(), "S", "c", 1_000), []

    async def other():
        while True:
            turns.append(True)
            await asyncio.sleep(0)

    for _ in range(1_000):
        pull._came.put_nowait(Msg(None, data=b"x"))
    task = asyncio.create_task(other())
    for _ in range(1_000):
        await pull.next()
    task.cancel()
    assert len(turns) >= 1_000 // 16


async def test_a_step_of_any_number_of_micro_steps_can_be_claimed_before_one_is_acknowledged(tmp_path):
    """A7: 10,001 of them, where a consumer of the server's own would stop at 1,000: an acknowledgement comes only after the update."""
    count = 10_001
    async with TestRun(tmp_path) as run:
        trajproc, trainer = await run.bus("trajproc"), await run.bus("trainer")
        for index in range(count):
            micro = r.MicroStep(micro_id=f"m{index}", step=0, group_id="g000001", rows=[], tokens=0, at_s=0.0)
            await trajproc.client.publish(subject_of(trajproc.run, micro), r.encode(micro))
        await trajproc.client.flush(60)
        queue = work.micros(trainer, ack_wait_s=600.0)
        assert await queue.next(20.0) is not None
        many = Pull(trainer.client, "GYRE_MICRO", f"{trainer.run}-micro", batch=500)
        await many.open()
        for _ in range(count - 1):
            assert await many.next(20.0) is not None

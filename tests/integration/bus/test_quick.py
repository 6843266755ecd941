"""The connection that only stores: what is stored over it is stored as over the general client, whatever happens to server or connection."""

import asyncio
import os
import signal
import time

import pytest

from gyre import records as r
from gyre.bus import Bus
from gyre.bus.server import MAX_PAYLOAD_BYTES
from gyre.errors import Conflict, InvalidInput, Unavailable
from gyre.records.call import RECORD_BYTES
from tests.support import TestRun, until


def opened(step: int) -> r.StepOpened:
    return r.StepOpened(step=step, burst=0, at_s=time.time())


def recorded(index: int, prompt: bytes = b"") -> r.CallRecorded:
    return r.CallRecorded(
        call_id=f"g000001-e0-a1-c{index:06}", execution_id="g000001-e0", group_id="g000001", attempt=1, call_index=index,
        purpose="train", parent="", parent_tokens=0, prompt_delta=prompt, prompt_tokens=len(prompt) // 4, output_ids=b"", logprobs=b"",
        versions=b"", finish_reason="stop", sampling=r.Sampling(temperature=1.0, top_p=1.0, max_tokens=1, seed=1),
    )  # fmt: skip


async def quick(run: TestRun, identity: str) -> Bus:
    bus = await run.bus(identity)
    bus.quicken()
    await until(lambda: bus.is_quick)
    return bus


async def test_each_fact_is_stored_once_in_order_through_a_killed_server(tmp_path):
    """E: NATS killed and restarted under a publisher: it waits, the connection comes back, nothing is lost or repeated."""
    async with TestRun(tmp_path) as run:
        trainer, seen = await quick(run, "trainer"), list[int]()

        async def follow() -> None:
            async for fact, _ in run.operator.follow([r.StepOpened]):
                seen.append(fact.step)

        following = asyncio.create_task(follow())
        numbers = [await trainer.publish(opened(step)) for step in range(3)]
        assert numbers == sorted(set(numbers))
        os.kill(run.nats.process.pid, signal.SIGKILL)
        await run.nats.process.wait()
        publishing = asyncio.create_task(trainer.publish(opened(3)))
        await until(lambda: not trainer.is_quick)
        await run.nats.start()
        await publishing
        await until(lambda: trainer.is_quick)
        assert await trainer.publish(opened(3)) == await publishing
        await trainer.publish(opened(4))
        await until(lambda: 4 in seen)
        following.cancel()
        assert seen == [0, 1, 2, 3, 4]


async def test_an_acknowledgement_that_is_lost_with_its_connection_is_asked_for_again(tmp_path):
    """E: stored, but nobody was told: the general client says it again under the same natural key."""
    async with TestRun(tmp_path) as run:
        trainer = await quick(run, "trainer")
        publishing = asyncio.create_task(trainer.publish(opened(0)))
        await asyncio.sleep(0)  # it is on its way
        trainer._quick.close()
        first = await publishing
        await trainer.publish(opened(1))
        assert await trainer.publish(opened(0)) == first
        assert await run.operator.last_sequence([r.StepOpened]) == first + 1


async def test_of_two_who_write_after_the_same_record_one_is_told(tmp_path):
    """C2: several gateways; as without it."""
    async with TestRun(tmp_path) as run:
        one, other = await quick(run, "gateway"), await run.bus("gateway")
        first = await one.publish(recorded(0), after=0)
        second = await other.publish(recorded(1), after=first)
        with pytest.raises(Conflict):
            await one.publish(recorded(2), after=first)
        assert await one.publish(recorded(2), after=second) > second


async def test_least_privilege_and_the_largest_size_are_as_without_it(tmp_path):
    async with TestRun(tmp_path) as run:
        gateway = await quick(run, "gateway")
        with pytest.raises(Unavailable):
            await gateway.publish(opened(0), deadline_s=0.5)
        await until(lambda: gateway.is_quick)
        large = recorded(0, bytes(MAX_PAYLOAD_BYTES - RECORD_BYTES))
        await gateway.publish(large)
        assert (await run.operator.newest(r.CallRecorded, "g000001-e0")) == large
        with pytest.raises(InvalidInput, match="the bus takes"):
            await gateway.publish(recorded(1, bytes(MAX_PAYLOAD_BYTES)))

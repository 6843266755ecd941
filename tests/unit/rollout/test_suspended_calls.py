"""Calls of an execution that is suspended, as its own model calls see it (C2)."""

import asyncio

import pytest

from services.rollout.gateway.running import ExecutionOver

from .builders import request
from .test_calls import MAIN, START, claims, made  # noqa: F401  a fixture


async def test_calls_of_a_suspended_execution_wait_and_go_on_when_it_is_resumed(made):  # noqa: F811
    """C2: the pool is not asked meanwhile; a retry still joins the call that waits."""
    calls, pool, bus, _ = made
    calls.hold("g000001-e0-a1")
    running = calls.begin(claims(), request(START), MAIN)
    await asyncio.sleep(0)
    assert calls.begin(claims(), request(START), MAIN) is running
    assert not pool.seen and not running.done.done()
    calls.go_on("g000001-e0-a1")
    assert (await running.done).parsed.content == "hello" and len(bus.records) == 1


async def test_a_call_that_waits_for_its_suspended_execution_ends_with_it(made):  # noqa: F811
    """C2: voided while suspended: nothing was sampled, so nothing is recorded, and a later attempt is not held."""
    calls, pool, bus, _ = made
    pool.finish = "aborted"
    calls.hold("g000001-e0-a1")
    running = calls.begin(claims(), request(START), MAIN)
    await asyncio.sleep(0)
    pool.text = ""
    totals = await calls.close("g000001-e0-a1")
    with pytest.raises(Exception, match="abandoned"):
        await running.done
    assert (totals.turns, totals.calls, bus.records) == (0, 0, [])


async def test_an_attempt_that_is_ending_is_not_held(made):  # noqa: F811
    """C2: a suspension that comes while its last call is put on record; the ending would wait for a call that waits for the resumption."""
    calls, pool, bus, _ = made
    pool.go.clear()
    bus.stored.clear()
    running = calls.begin(claims(), request(START), MAIN)
    await asyncio.sleep(0)
    ending = asyncio.create_task(calls.stop("g000001-e0-a1"))
    for _ in range(5):
        await asyncio.sleep(0)
    calls.hold("g000001-e0-a1")
    bus.stored.set()
    async with asyncio.timeout(60):
        totals = await ending
        with pytest.raises(ExecutionOver):
            await running.done
    assert (totals.calls, len(bus.records)) == (1, 1)


async def test_a_call_that_is_being_sampled_at_a_suspension_is_recorded_and_answered_when_it_is_resumed(made):  # noqa: F811
    """C2: else its answer could be the execution's last word. The same for its retry after a restart, which finds the record."""
    calls, pool, bus, _ = made
    pool.go.clear()
    running = calls.begin(claims(), request(START), MAIN)
    await asyncio.sleep(0)
    calls.hold("g000001-e0-a1")
    pool.go.set()
    for _ in range(5):
        await asyncio.sleep(0)
    assert len(bus.records) == 1 and not running.done.done()
    calls.go_on("g000001-e0-a1")
    reply = await running.done
    calls.hold("g000001-e0-a1")
    again = calls.begin(claims(), request(START), MAIN)
    assert calls.begin(claims(), request(START), MAIN) is again and not again.done.done()
    calls.go_on("g000001-e0-a1")
    assert (await again.done).body() == reply.body() and len(bus.records) == 1
    assert (await calls.close("g000001-e0-a1")).turns == 1

"""Endings beside model calls that come at the same time: nothing is on record of an attempt behind its ending (B1, C6)."""

import asyncio

import pytest

from gyre.clock import ManualClock
from gyre.records import CallRecorded, ExecutionEnded
from services.rollout.core.ending import Said
from services.rollout.core.leases import Lease
from services.rollout.gateway.endings import Endings
from services.rollout.gateway.held import Hands
from services.rollout.gateway.restore import Restored
from services.rollout.gateway.running import ExecutionOver
from tests.support import until

from .builders import request
from .test_calls import MAIN, START, claims, made  # noqa: F401  a fixture
from .test_leases import book, task


async def sure() -> None:
    """There is no other gateway."""


LATE = [*START, {"role": "user", "content": "more"}]


@pytest.mark.parametrize("asked", [START, None])
async def test_a_call_between_the_books_of_an_attempt_and_its_ending_on_record_is_refused(made, asked):  # noqa: F811
    """It would begin an empty session: its record would bear the name of the first call, and the log would take it for a repetition."""
    calls, _, bus, attempts = made
    if asked is not None:
        await calls.begin(claims(), request(asked), MAIN).done
    leases = book(attempts=attempts)
    endings = Endings(Hands(leases, Restored(attempts=attempts)), calls, bus, ManualClock(100.0), sure)
    lease = Lease(task("g000001-e0"), 1, "p", 0.0)
    bus.stored.clear()
    ending = endings.start(lease, Said("completed", "submitted", "", None))
    await until(lambda: bus.asked and isinstance(bus.asked[-1], ExecutionEnded))
    for messages in (START, LATE):
        assert calls.memory(claims()) is not None, "its body is read as ever"
        with pytest.raises(ExecutionOver):
            calls.begin(claims(), request(messages), MAIN)
    bus.stored.set()
    await asyncio.wait_for(asyncio.shield(ending), 60.0)
    assert not calls.sessions and calls.memory(claims()) is None
    with pytest.raises(ExecutionOver):
        calls.begin(claims(), request(LATE), MAIN)
    assert [type(record) for record in bus.records] == [CallRecorded] * (asked is not None) + [ExecutionEnded]

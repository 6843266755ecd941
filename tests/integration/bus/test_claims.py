"""Who may write: compare-and-set of claims, and records that only one of two writers gets in (state and restarts)."""

import asyncio
import time

import pytest

from gyre import records as r
from gyre.bus.claims import Claims
from gyre.errors import Conflict
from tests.support import TestRun


def ended(attempt: int, at_s: float = 1.0) -> r.ExecutionLeased:
    return r.ExecutionLeased(execution_id="g000001-e0", group_id="g000001", attempt=attempt, holder="x", at_s=at_s)


async def test_of_two_who_claim_at_once_one_wins_and_a_reader_sees_what_stands(tmp_path):
    async with TestRun(tmp_path) as run:
        one, other = Claims(await run.bus("gateway")), Claims(await run.bus("gateway"))
        assert await one.get("sessions.s") == await other.get("sessions.s")
        mine = await one.put("sessions.s", "gateway", 0)
        with pytest.raises(Conflict):
            await other.put("sessions.s", "gateway-1", 0)
        assert await other.get("sessions.s") == mine
        taken = await other.put("sessions.s", "gateway-1", mine.revision)
        with pytest.raises(Conflict):
            await one.put("sessions.s", "", mine.revision)
        await one.put("gateways.a", "where")
        seen = aiter(one.follow("sessions.*"))
        assert await asyncio.wait_for(anext(seen), 60) == taken
        await other.put("sessions.t", "gateway")
        assert (await asyncio.wait_for(anext(seen), 60)).key == "sessions.t"
        await seen.aclose()


async def test_a_record_that_expects_another_newest_one_is_refused_and_a_repeat_of_ones_own_is_not(tmp_path):
    """Two gateways that both believe to serve a session: the log takes the records of one of them."""
    async with TestRun(tmp_path) as run:
        one, other = await run.bus("gateway"), await run.bus("gateway")
        assert await one.all_of(r.ExecutionLeased, "g000001-e0") == []
        first = await one.publish(ended(1), after=0)
        with pytest.raises(Conflict):
            await other.publish(ended(2, time.time()), after=0)
        second = await other.publish(ended(2), after=first)
        assert await other.publish(ended(2), after=first) == second, "the answer to the first try was lost"
        assert [(fact.attempt, at) for fact, at in await one.all_of(r.ExecutionLeased, "g000001-e0")] == [
            (1, first), (2, second),
        ]  # fmt: skip

"""Tasks that are told to end do."""

import asyncio

import pytest

from gyre.tasks import end, surely, whole


async def test_a_task_that_loses_its_cancellation_is_cancelled_again():
    """A8. What `asyncio.wait_for` of Python 3.11 does when its result comes with the cancellation: go on as if nothing had been said."""
    lost = []

    async def goes_on() -> None:
        while True:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                if lost:
                    raise
                lost.append(True)

    task = asyncio.create_task(goes_on())
    await asyncio.sleep(0)
    await asyncio.wait_for(end(task), 60)
    assert task.cancelled() and lost


async def stubborn(ended: list[str]) -> None:
    """Misses its first cancellation, as a library may."""
    for _ in range(2):
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            ended.append("told")
    raise asyncio.CancelledError


async def test_work_that_misses_a_cancellation_is_told_again_by_who_awaits_it():
    """A8. The start of a run, told to stop, that swallowed it: it went on, and waited for ever for another that had stopped."""
    ended: list[str] = []
    caller = asyncio.create_task(surely(stubborn(ended), again_s=0.01))
    await asyncio.sleep(0)
    caller.cancel()
    async with asyncio.timeout(60):
        await asyncio.wait([caller])
    assert caller.cancelled() and ended == ["told", "told"]


async def test_who_is_cancelled_while_ending_others_hears_of_it_when_they_have_ended():
    ended: list[str] = []
    task = asyncio.create_task(stubborn(ended))
    await asyncio.sleep(0)
    caller = asyncio.create_task(end(task, again_s=0.05))
    await asyncio.sleep(0.01)
    caller.cancel()
    async with asyncio.timeout(60):
        await asyncio.wait([caller])
    assert caller.cancelled() and task.cancelled() and ended == ["told", "told"]


async def test_clean_up_goes_to_its_end_however_often_its_caller_is_cancelled():
    done, gate = [], asyncio.Event()

    async def cleans_up() -> None:
        await gate.wait()
        done.append(True)

    caller = asyncio.create_task(whole(cleans_up()))
    for _ in range(3):
        await asyncio.sleep(0)
        caller.cancel()
    await asyncio.sleep(0)
    assert not caller.done()
    gate.set()
    async with asyncio.timeout(60):
        await asyncio.wait([caller])
    assert caller.cancelled() and done


@pytest.mark.parametrize("through", [surely, whole])
async def test_results_and_errors_pass(through):
    async def gives() -> int:
        return 7

    async def fails() -> None:
        raise ValueError("as it was")

    assert await through(gives()) == 7
    with pytest.raises(ValueError, match="as it was"):
        await through(fails())

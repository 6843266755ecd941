"""Tasks that are told to end do."""

import asyncio

from gyre.tasks import end


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
    await asyncio.wait_for(end(task), 10)
    assert task.cancelled() and lost

"""Ending asyncio tasks for sure."""

import asyncio

AGAIN_S = 0.5
"""Between two cancellations of a task that goes on."""


async def end(*tasks: asyncio.Future, again_s: float = AGAIN_S) -> None:
    """Cancel, and return when each has ended; results and errors are not looked at. `again_s` is longer than they take to clean up.

    Cancelled again until it is so: `asyncio.wait_for` of Python 3.11 returns the result, and forgets the cancellation, when both come at
    the same moment, as they do in a process that was frozen for a while.
    """
    pending = {task for task in tasks if not task.done()}
    while pending:
        for task in pending:
            task.cancel()
        _, pending = await asyncio.wait(pending, timeout=again_s)
    for task in tasks:  # said to have been looked at, or each is complained about in the log
        if not task.cancelled():
            task.exception()

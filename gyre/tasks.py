"""Ending asyncio tasks for sure, and letting others come to their end.

    end(task)       cancels, and returns when it has ended
    surely(work)    awaits, and hands a cancellation on until it took effect
    whole(work)     awaits to the end, whatever cancels the caller meanwhile: for what cleans up

A cancellation can get lost on its way: `asyncio.wait_for` of Python 3.11 returns the result, and forgets the cancellation, when both come at the
same moment, and libraries use it. Gyre's own code waits with `asyncio.timeout`, and whoever cancels does it until it is so.
"""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

Result = TypeVar("Result")

AGAIN_S = 0.5
"""Between two cancellations of a task that goes on."""


async def end(*tasks: asyncio.Future, again_s: float = AGAIN_S) -> None:
    """Cancel, and return when each has ended; results and errors are not looked at. `again_s` is longer than they take to clean up.

    Cancelled again until it is so. A caller that is cancelled meanwhile hears of it when they have ended.
    """
    loop = asyncio.get_running_loop()
    told: asyncio.CancelledError | None = None
    pending = {task for task in tasks if not task.done()}
    while pending:
        for task in pending:
            task.cancel()
        again_at_s = loop.time() + again_s
        while pending and (left_s := again_at_s - loop.time()) > 0:
            try:
                _, pending = await asyncio.wait(pending, timeout=left_s)
            except asyncio.CancelledError as error:
                told = error
    for task in tasks:  # said to have been looked at, or each is complained about in the log
        if not task.cancelled():
            task.exception()
    if told is not None:
        raise told


async def surely(work: Awaitable[Result], again_s: float = AGAIN_S) -> Result:
    """The result of `work`. When the caller is cancelled, it has ended before that is raised, even where it missed a first cancellation."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.wait([task])
    finally:
        await end(task, again_s=again_s)
    return task.result()


async def whole(work: Awaitable[Result]) -> Result:
    """The result of `work`, which goes to its end; a cancellation of the caller is raised then."""
    task = asyncio.ensure_future(work)
    told: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as error:
            told = error
    if told is not None:
        raise told from (None if task.cancelled() else task.exception())
    return task.result()

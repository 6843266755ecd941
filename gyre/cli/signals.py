"""Ctrl-C and SIGTERM cancel the work in hand, whose clean-up then stops everything in order."""

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any

from gyre.tasks import end

SIGTERM_EXIT = 143
SIGINT_EXIT = 130
AGAIN_S = 20.0
"""Longer than a run takes to stop in order. Work that still goes on has missed its cancellation and is told again."""


async def until_told(work: Coroutine[Any, Any, Any]) -> Any:
    """The result of `work`. Told to stop, it is cancelled, however often one tells it, and SystemExit is raised when it has cleaned up."""
    task = asyncio.ensure_future(work)
    loop = asyncio.get_running_loop()
    told: asyncio.Future[int] = loop.create_future()

    def stop(code: int) -> None:
        if not told.done():
            told.set_result(code)

    for number, code in ((signal.SIGTERM, SIGTERM_EXIT), (signal.SIGINT, SIGINT_EXIT)):
        loop.add_signal_handler(number, stop, code)
    try:
        await asyncio.wait([task, told], return_when=asyncio.FIRST_COMPLETED)
    finally:
        await end(task, again_s=AGAIN_S)
    if told.done() and task.cancelled():
        raise SystemExit(told.result())
    return task.result()

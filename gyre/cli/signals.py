"""Ctrl-C and SIGTERM cancel the work in hand, whose clean-up then stops everything in order."""

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any

SIGTERM_EXIT = 143
SIGINT_EXIT = 130


async def until_told(work: Coroutine[Any, Any, Any]) -> Any:
    """The result of `work`. Told to stop, it is cancelled (once: a second Ctrl-C waits as well) and SystemExit is raised when it has cleaned up."""
    task = asyncio.ensure_future(work)
    told: list[int] = []
    loop = asyncio.get_running_loop()

    def stop(code: int) -> None:
        if not told:
            task.cancel()
        told.append(code)

    for number, code in ((signal.SIGTERM, SIGTERM_EXIT), (signal.SIGINT, SIGINT_EXIT)):
        loop.add_signal_handler(number, stop, code)
    try:
        return await task
    except asyncio.CancelledError:
        if told:
            raise SystemExit(told[0]) from None
        raise

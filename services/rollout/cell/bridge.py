"""From the engine's thread to asyncio: one wake-up of the loop for all chunks of a decode step, not one a call."""

import asyncio
import threading
from collections import deque

from services.rollout.engine import Chunk


class Bridge:
    """`sink` gives a callback for the engine; its chunks arrive in the queue, on the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._lock = threading.Lock()
        self._arrived: deque[tuple[asyncio.Queue[Chunk], Chunk]] = deque()
        self._is_woken = False

    def sink(self, queue: "asyncio.Queue[Chunk]"):
        def on_tokens(chunk: Chunk) -> None:
            with self._lock:
                self._arrived.append((queue, chunk))
                if self._is_woken:
                    return
                self._is_woken = True
            self._loop.call_soon_threadsafe(self._deliver)

        return on_tokens

    def _deliver(self) -> None:
        with self._lock:
            arrived, self._arrived = self._arrived, deque()
            self._is_woken = False
        for queue, chunk in arrived:
            queue.put_nowait(chunk)

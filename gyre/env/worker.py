"""Runs an author's methods, plain or `async`, with an end to the waiting.

A plain method runs in the execution's own thread, so methods of one environment never overlap and may keep what is bound
to a thread. A method that hangs cannot be stopped from outside: its thread is left behind (a daemon, it never holds up the
process's end) and what comes after runs in a new one.
"""

import asyncio
import inspect
import queue
import threading
from collections.abc import Callable
from typing import Any


class Hung(Exception):
    """The method did not return in time."""


class Worker:
    """One execution's thread; `close` it when done."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._jobs: queue.SimpleQueue | None = None
        self._running: asyncio.Future | None = None
        self.has_hung = False

    async def call(self, method: Callable[..., Any], *arguments: Any, timeout_s: float) -> Any:
        """`method(*arguments)`'s result, awaited when it is a coroutine. Raises Hung after `timeout_s`, and whatever the method raises."""
        if inspect.iscoroutinefunction(method):
            running = asyncio.ensure_future(method(*arguments))
        else:
            running = self._submit(method, *arguments)
        self._running = running
        done, _ = await asyncio.wait([running], timeout=max(timeout_s, 0.0))
        if not done:
            self._leave_behind()
            raise Hung(f"{getattr(method, '__name__', method)} did not return within {timeout_s:.1f} s")
        result = running.result()
        # A plain factory or method may still hand back a coroutine (a partial, a lambda over an async method).
        return await asyncio.wait_for(result, timeout_s) if inspect.isawaitable(result) else result

    async def settle(self, timeout_s: float) -> None:
        """After a cancellation: give the method in hand a last `timeout_s` to return, then leave it behind."""
        if self._running is not None and not self._running.done():
            if isinstance(self._running, asyncio.Task):
                self._running.cancel()
            done, _ = await asyncio.wait([self._running], timeout=timeout_s)
            if not done:
                self._leave_behind()

    def close(self) -> None:
        if self._jobs is not None:
            self._jobs.put(None)
            self._jobs = None

    def _leave_behind(self) -> None:
        self.has_hung = True
        if self._running is not None:
            self._running.cancel()
        self.close()

    def _submit(self, method: Callable[..., Any], *arguments: Any) -> asyncio.Future:
        if self._jobs is None:
            self._jobs = queue.SimpleQueue()
            threading.Thread(target=_serve, args=(self._jobs,), name=self._name, daemon=True).start()
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        self._jobs.put((loop, future, method, arguments))
        return future


def _serve(jobs: queue.SimpleQueue) -> None:
    while (job := jobs.get()) is not None:
        loop, future, method, arguments = job
        try:
            result, error = method(*arguments), None
        except StopIteration as stop:  # a future cannot carry it
            result, error = None, RuntimeError(f"StopIteration: {stop}")
        except BaseException as raised:
            result, error = None, raised
        try:
            loop.call_soon_threadsafe(_resolve, future, result, error)
        except RuntimeError:  # the loop has been closed: nobody waits any more
            return


def _resolve(future: asyncio.Future, result: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    elif isinstance(error, Exception):
        future.set_exception(error)
    else:
        future.set_exception(RuntimeError(f"{type(error).__name__}: {error}"))

"""Runs an author's methods, plain or `async`, with an end to the waiting.

A plain method runs in the thread its execution was lent, so methods of one environment never overlap and may keep what is bound to a
thread. A method that hangs cannot be stopped from outside: its thread is left behind until it returns by itself (threads are daemons,
they never hold up the process's end) and what comes after runs in another one.

Threads live as long as the process: on Linux a child process that asked to die with its parent dies with the *thread* that made it, and
environments often share such a child between executions.
"""

import asyncio
import inspect
import queue
import threading
from collections import deque
from collections.abc import Callable
from typing import Any


class Hung(Exception):
    """The method did not return in time."""


class Threads:
    """Threads that are lent to executions; as many as there were executions (and hung methods) at once."""

    def __init__(self) -> None:
        self._idle: deque[queue.SimpleQueue[Callable[[], None]]] = deque()

    def lend(self) -> "queue.SimpleQueue[Callable[[], None]]":
        """A thread, by the queue of what it is to do, one after the other."""
        try:
            return self._idle.pop()
        except IndexError:
            jobs: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
            threading.Thread(target=_serve, args=(jobs,), name="environment", daemon=True).start()
            return jobs

    def take_back(self, jobs: "queue.SimpleQueue[Callable[[], None]]") -> None:
        """It is idle again once it has done what is in hand, however long that takes."""
        jobs.put(lambda: self._idle.append(jobs))


class Worker:
    """One execution's calls; `close` it when done."""

    def __init__(self, threads: Threads) -> None:
        self._threads = threads
        self._jobs: queue.SimpleQueue[Callable[[], None]] | None = None
        self._running: asyncio.Future | None = None
        self.has_hung = False

    async def call(
        self, method: Callable[..., Any], *arguments: Any, timeout_s: float, cut: asyncio.Event | None = None, grace_s: float = 0.0
    ) -> Any:  # fmt: skip
        """`method(*arguments)`'s result, awaited when it is a coroutine. Raises Hung after `timeout_s`, or `grace_s` after `cut` was set, and
        whatever the method raises."""
        if inspect.iscoroutinefunction(method):
            running = asyncio.ensure_future(_awaited(method, arguments))
        else:
            running = self._submit(method, *arguments)
        self._running = running
        if not await _is_done(running, max(timeout_s, 0.0), cut, grace_s):
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
            self._threads.take_back(self._jobs)
            self._jobs = None

    def _leave_behind(self) -> None:
        self.has_hung = True
        if self._running is not None:
            self._running.cancel()
        self.close()

    def _submit(self, method: Callable[..., Any], *arguments: Any) -> asyncio.Future:
        if self._jobs is None:
            self._jobs = self._threads.lend()
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        self._jobs.put(lambda: _carry_out(loop, future, method, arguments))
        return future


async def _is_done(running: asyncio.Future, timeout_s: float, cut: asyncio.Event | None, grace_s: float) -> bool:
    """Whether it returned in time."""
    if cut is None:
        await asyncio.wait([running], timeout=timeout_s)
        return running.done()
    cutting = asyncio.ensure_future(cut.wait())
    try:
        await asyncio.wait([running, cutting], timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        if cut.is_set() and not running.done():
            await asyncio.wait([running], timeout=grace_s)
    finally:
        cutting.cancel()
    return running.done()


async def _awaited(method: Callable[..., Any], arguments: tuple) -> Any:
    """`sys.exit()` in an author's coroutine ends its execution and not the process."""
    try:
        return await method(*arguments)
    except (SystemExit, KeyboardInterrupt) as raised:
        raise RuntimeError(repr(raised)) from raised


def _serve(jobs: "queue.SimpleQueue[Callable[[], None]]") -> None:
    while True:
        jobs.get()()


def _carry_out(
    loop: asyncio.AbstractEventLoop, future: asyncio.Future, method: Callable[..., Any], arguments: tuple
) -> None:
    """In the thread: call, and hand the result to the loop. Nothing an author raises ends the thread."""
    try:
        result, error = method(*arguments), None
    except Exception as raised:
        # A future cannot carry StopIteration.
        result, error = None, RuntimeError(repr(raised)) if isinstance(raised, StopIteration) else raised
    except BaseException as raised:
        result, error = None, RuntimeError(repr(raised))
    try:
        loop.call_soon_threadsafe(_resolve, future, result, error)
    except RuntimeError:  # the loop has been closed: nobody waits any more
        pass


def _resolve(future: asyncio.Future, result: Any, error: Exception | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)

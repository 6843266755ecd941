"""Runs an author's methods, plain or `async`, with an end to the waiting, and away from everybody else's loop.

    plain method ──▶ a thread lent to the execution          `then(result)` runs where the method ran:
    async method ──▶ an event loop of its own, in another    what an object does when it is looked at is its author's code, too

A plain method runs in the thread its execution was lent, so methods of one environment never overlap and may keep what is bound to a
thread. A method that hangs cannot be stopped from outside: its thread is left behind until it returns by itself (threads are daemons,
they never hold up the process's end) and what comes after runs in another one. So it is with an `async` one that blocks its loop; one that
only waits is cancelled. What an execution left in its loop ends with it.

Threads live as long as the process: on Linux a child process that asked to die with its parent dies with the *thread* that made it, and
environments often share such a child between executions.
"""

import asyncio
import inspect
import logging
import queue
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from gyre.errors import InvalidInput

log = logging.getLogger(__name__)

LEFT_S = 1.0
"""What an execution left in its loop may take so long to end when it is cancelled."""


class Hung(Exception):
    """The method did not return in time."""


class Rubbish(InvalidInput):
    """What a method returned is not what it should be."""


class Threads:
    """Threads that are lent to executions; as many as there were executions (and hung methods) at once."""

    def __init__(self) -> None:
        self._idle: deque[queue.SimpleQueue[Callable[[], None]]] = deque()
        self.hung: set[int] = set()
        """Those in which something was left behind that has not returned yet."""

    def lend(self) -> "queue.SimpleQueue[Callable[[], None]]":
        """A thread, by the queue of what it is to do, one after the other."""
        try:
            return self._idle.pop()
        except IndexError:
            jobs: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
            threading.Thread(target=_serve, args=(jobs,), name="environment", daemon=True).start()
            return jobs

    def take_back(self, jobs: "queue.SimpleQueue[Callable[[], None]]", has_hung: bool = False) -> None:
        """It is idle again once it has done what is in hand, however long that takes."""
        if has_hung:
            self.hung.add(id(jobs))
            log.warning("a method was left behind in its thread; %d such threads now", len(self.hung))

        def idle() -> None:
            self.hung.discard(id(jobs))
            self._idle.append(jobs)

        jobs.put(idle)


SHARED = Threads()
"""The process's: a pool of its own for each execution would leave its threads behind, for they never end."""


class OwnLoop:
    """An event loop in a lent thread. Whoever blocks it stops nothing but what is in it."""

    def __init__(self, threads: Threads) -> None:
        self._threads, self._jobs = threads, threads.lend()
        self.loop = asyncio.new_event_loop()
        self._jobs.put(self._run)

    def close(self, has_hung: bool = False) -> None:
        """Once; what is left in it is cancelled."""
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._threads.take_back(self._jobs, has_hung)

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
            if left := asyncio.all_tasks(self.loop):
                for task in left:
                    task.cancel()
                self.loop.run_until_complete(asyncio.wait(left, timeout=LEFT_S))
            self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        except BaseException as error:  # an author's task or generator may raise anything at all
            log.warning("what an execution left in its loop did not end well: %s", shown(error))
        finally:
            asyncio.set_event_loop(None)
            self.loop.close()


class Worker:
    """One execution's calls; `close` it when done."""

    def __init__(self, threads: Threads = SHARED) -> None:
        self._threads = threads
        self._jobs: queue.SimpleQueue[Callable[[], None]] | None = None
        self._own_loop: OwnLoop | None = None
        self._running: asyncio.Future | None = None
        self._cancel: Callable[[], None] = _nothing
        """Of the method in hand, where it can be cancelled."""
        self.shares_loop = False
        """Its async methods run in the caller's loop: for environments that are known to block nothing."""
        self.has_hung = False

    async def call(
        self, method: Callable[..., Any], *arguments: Any, timeout_s: float, cut: asyncio.Event | None = None, grace_s: float = 0.0,
        then: Callable[[Any], Any] = lambda result: result,
    ) -> Any:  # fmt: skip
        """`then(method(*arguments))`, awaited when it is a coroutine. Raises Hung after `timeout_s`, or `grace_s` after `cut` was set, and
        whatever `method` raises; RuntimeError for what is no Exception (SystemExit, a cancellation of its own); Rubbish where `then` raises
        InvalidInput."""
        start = self._start_async if inspect.iscoroutinefunction(method) else self._start
        result = await self._returned(start(method, arguments, then), _name(method), timeout_s, cut, grace_s)
        if inspect.isawaitable(result):  # of a plain method: a partial, a lambda over an async one
            running = self._start_async(_itself, (result,), then)
            result = await self._returned(running, _name(method), timeout_s, cut, grace_s)
        return result

    async def settle(self, timeout_s: float) -> None:
        """After a cancellation: give the method in hand a last `timeout_s` to return, then leave it behind."""
        if self._running is not None and not self._running.done():
            self._cancel()
            done, _ = await asyncio.wait([self._running], timeout=timeout_s)
            if not done:
                self._leave_behind()

    def close(self) -> None:
        self._let_thread_go()
        self._let_loop_go()

    def _let_thread_go(self, has_hung: bool = False) -> None:
        if self._jobs is not None:
            self._threads.take_back(self._jobs, has_hung)
            self._jobs = None

    def _let_loop_go(self, has_hung: bool = False) -> None:
        if self._own_loop is not None:
            self._own_loop.close(has_hung)
            self._own_loop = None

    async def _returned(
        self, running: asyncio.Future, name: str, timeout_s: float, cut: asyncio.Event | None, grace_s: float
    ) -> Any:  # fmt: skip
        self._running = running
        if await _is_done(running, max(timeout_s, 0.0), cut, grace_s):
            return running.result()
        self.has_hung = True
        # One that is cancelled may still clean up, and what comes after finds it done.
        self._cancel()
        if self._cancel is _nothing or not (await asyncio.wait([running], timeout=LEFT_S))[0]:
            self._leave_behind()
        raise Hung(f"{name} did not return within {timeout_s:.1f} s")

    def _leave_behind(self) -> None:
        """The method in hand, and the place where it hangs; the other one is as good as before."""
        self.has_hung = True
        if self._running is not None:
            self._running.cancel()  # what it may still come to has nowhere to go
        if self._cancel is _nothing:
            self._let_thread_go(has_hung=True)
        else:
            self._let_loop_go(has_hung=True)

    def _start(self, method: Callable[..., Any], arguments: tuple, then: Callable[[Any], Any]) -> asyncio.Future:
        if self._jobs is None:
            self._jobs = self._threads.lend()
        loop, self._cancel = asyncio.get_running_loop(), _nothing
        future = _future(loop)
        self._jobs.put(lambda: _carry_out(loop, future, method, arguments, then))
        return future

    def _start_async(self, method: Callable[..., Any], arguments: tuple, then: Callable[[Any], Any]) -> asyncio.Future:
        loop = asyncio.get_running_loop()
        future, begun = _future(loop), []
        if self._own_loop is None and not self.shares_loop:
            self._own_loop = OwnLoop(self._threads)
        place = loop if self.shares_loop else self._own_loop.loop
        place.call_soon_threadsafe(
            lambda: begun.append(place.create_task(_await_out(loop, future, method, arguments, then)))
        )
        self._cancel = lambda: place.call_soon_threadsafe(lambda: [task.cancel() for task in begun])
        return future


def shown(error: BaseException) -> str:
    """An author's exception in words, also where asking it for some raises another."""
    try:
        return repr(error)
    except Exception:
        return type(error).__name__


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


def _serve(jobs: "queue.SimpleQueue[Callable[[], None]]") -> None:
    while True:
        jobs.get()()


def _carry_out(
    loop: asyncio.AbstractEventLoop, future: asyncio.Future, method: Callable[..., Any], arguments: tuple, then: Callable[[Any], Any]
) -> None:  # fmt: skip
    """In the thread: call, and hand the result to the loop. Nothing an author raises ends the thread."""
    result = error = None
    try:
        result = method(*arguments)
        if not inspect.isawaitable(result):
            result = _looked_at(result, then)
    except BaseException as raised:
        result, error = None, _as_exception(raised)
    _hand(loop, future, result, error)


async def _await_out(
    loop: asyncio.AbstractEventLoop, future: asyncio.Future, method: Callable[..., Any], arguments: tuple, then: Callable[[Any], Any]
) -> None:  # fmt: skip
    """The same in a loop. `sys.exit()` in an author's coroutine ends its execution, and neither the loop nor the process."""
    result = error = None
    try:
        result = _looked_at(await method(*arguments), then)
    except BaseException as raised:
        result, error = None, _as_exception(raised)
    _hand(loop, future, result, error)


def _looked_at(result: Any, then: Callable[[Any], Any]) -> Any:
    try:
        return then(result)
    except InvalidInput as error:
        raise Rubbish(str(error)) from error


def _as_exception(raised: BaseException) -> Exception:
    """What a future can carry and nobody takes for his own: an author's SystemExit or CancelledError ends nothing of ours."""
    if isinstance(raised, Exception) and not isinstance(raised, StopIteration):
        return raised
    return RuntimeError(shown(raised))


def _hand(loop: asyncio.AbstractEventLoop, future: asyncio.Future, result: Any, error: Exception | None) -> None:
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


def _future(loop: asyncio.AbstractEventLoop) -> asyncio.Future:
    """Nobody need look at its error: of what was given up it is of no interest."""
    future = loop.create_future()
    future.add_done_callback(lambda done: done.cancelled() or done.exception())
    return future


async def _itself(awaitable: Any) -> Any:
    return await awaitable


def _nothing() -> None: ...


def _name(method: Callable[..., Any]) -> str:
    return getattr(method, "__name__", type(method).__name__)

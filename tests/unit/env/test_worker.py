"""Where an author's methods run: whatever one of them does, its caller's loop turns (B4)."""

import asyncio
import threading

import pytest

from gyre.env.worker import Hung, Rubbish, Threads, Worker
from gyre.errors import InvalidInput
from tests.support import until

FOR_EVER = threading.Event()


async def blocks() -> None:
    FOR_EVER.wait()


async def test_an_async_method_that_blocks_its_loop_hangs_alone():
    """Another execution's async method, begun while the first one blocks, returns; so does a further one of the first execution."""
    threads = Threads()
    stuck, other = Worker(threads), Worker(threads)
    blocking = asyncio.ensure_future(stuck.call(blocks, timeout_s=0.5))

    async def quick() -> str:
        await asyncio.sleep(0)
        return "done"

    assert await other.call(quick, timeout_s=60) == "done"
    with pytest.raises(Hung, match="blocks did not return"):
        await blocking
    assert stuck.has_hung and await stuck.call(quick, timeout_s=60) == "done"
    stuck.close()
    other.close()


async def test_async_methods_of_one_execution_share_a_loop_and_what_they_left_in_it_ends_with_it():
    """A session opened by `reset` may be used by `step`; a task that is never ended is cancelled at the end."""
    seen, ended = [], threading.Event()

    async def lasting() -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            ended.set()

    async def reset() -> None:
        seen.append(asyncio.get_running_loop())
        seen.append(asyncio.create_task(lasting()))
        await asyncio.sleep(0)

    async def step() -> None:
        seen.append(asyncio.get_running_loop())

    worker = Worker(Threads())
    await worker.call(reset, timeout_s=60)
    await worker.call(step, timeout_s=60)
    assert seen[0] is seen[2] and seen[0] is not asyncio.get_running_loop()
    worker.close()
    await until(ended.is_set)


async def test_a_method_that_is_given_up_may_clean_up_before_the_next_one():
    order, loop, under_way = [], asyncio.get_running_loop(), asyncio.Event()

    async def waits() -> None:
        loop.call_soon_threadsafe(under_way.set)
        try:
            await asyncio.sleep(3600)
        finally:
            await asyncio.sleep(0.01)
            order.append("cleaned up")

    async def after() -> None:
        order.append("after")

    worker = Worker(Threads())
    with pytest.raises(Hung):
        await worker.call(waits, timeout_s=60, cut=under_way)
    await worker.call(after, timeout_s=60)
    assert order == ["cleaned up", "after"]
    worker.close()


class Strange(BaseException):
    def __repr__(self) -> str:
        raise RuntimeError("not even this")


@pytest.mark.parametrize(
    "raised", [SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError(), GeneratorExit(), Strange()]
)
@pytest.mark.parametrize("is_async", [False, True])
async def test_whatever_a_method_raises_is_an_ordinary_error_of_its_execution(raised, is_async):
    """A cancellation of the author's own is not taken for ours, and SystemExit ends neither thread nor loop."""

    def plain() -> None:
        raise raised

    async def asynchronous() -> None:
        raise raised

    worker = Worker(Threads())
    with pytest.raises(RuntimeError):
        await worker.call(asynchronous if is_async else plain, timeout_s=60)
    assert await worker.call(lambda: "still here", timeout_s=60) == "still here"
    worker.close()


async def test_what_an_object_does_when_it_is_looked_at_happens_in_its_own_thread():
    """An observation whose text takes for ever is a method that hangs; one that is no text is rubbish, with the reason."""

    class Slow:
        def __str__(self) -> str:
            FOR_EVER.wait()
            return ""

    def refuse(result: object) -> None:
        raise InvalidInput(f"not {result}")

    worker = Worker(Threads())
    with pytest.raises(Hung):
        await worker.call(Slow, timeout_s=0.3, then=str)
    with pytest.raises(Rubbish, match="not 7"):
        await worker.call(lambda: 7, timeout_s=60, then=refuse)
    worker.close()


async def test_a_plain_method_that_returns_a_coroutine_is_awaited_like_any_other():
    async def blocks_for_ever() -> None:
        FOR_EVER.wait()

    async def one() -> int:
        return 1

    worker = Worker(Threads())
    assert await worker.call(lambda: one(), timeout_s=60, then=lambda n: n + 1) == 2
    with pytest.raises(Hung):
        await worker.call(lambda: blocks_for_ever(), timeout_s=0.3)
    worker.close()


async def test_environments_that_are_known_to_block_nothing_may_share_the_callers_loop():
    async def where() -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

    worker = Worker(Threads())
    worker.shares_loop = True
    before = set(threading.enumerate())
    assert await worker.call(where, timeout_s=60) is asyncio.get_running_loop()
    assert set(threading.enumerate()) <= before
    worker.close()

"""The pool against doubles of cells on real gRPC: moving, dying, waiting in line (A6, ThunderAgent#46)."""

import asyncio
import gc
import weakref

import numpy as np
import pytest

from gyre.api.rollout.v1 import cells_pb2 as pb
from gyre.api.rollout.v1 import cells_pb2_grpc
from gyre.clock import SystemClock
from gyre.errors import Conflict, GyreError, InvalidInput, Unavailable
from gyre.records import Sampling
from gyre.rpc import RpcServer, abort_with
from services.rollout.core.routing import Routing
from services.rollout.gateway.pool import CellPool, Known, Work
from tests.support import until


class CellDouble(cells_pb2_grpc.CellServiceServicer):
    """Samples the ids 0, 1, 2 … up to `hold_at`, where it waits for its `end`; drains or breaks as told."""

    def __init__(self) -> None:
        self.hold_at = -1
        self.error: Exception | None = None
        self.holds: asyncio.Event = asyncio.Event()
        self.end: asyncio.Event = asyncio.Event()
        self.end_reason = "migrated"
        self.seen: list[str] = []

    async def Generate(self, request, context):
        self.seen.append(request.call_id)
        if self.error is not None:
            await abort_with(context, self.error)
        for token in range(len(request.resume_ids), request.max_tokens):
            if token == self.hold_at:
                self.holds.set()
                await self.end.wait()
                yield pb.GenerateResponse(finish_reason=self.end_reason)
                return
            yield pb.GenerateResponse(ids=[token], logprobs=[-float(token)], versions=[7])
        yield pb.GenerateResponse(finish_reason="length")

    async def GenerateWhole(self, request, context):
        whole = pb.GenerateWholeResponse()
        async for part in self.Generate(request.call, context):
            whole.output.MergeFrom(part)
        return whole

    async def Abort(self, request, context):
        self.end_reason = "aborted"
        self.end.set()
        return pb.AbortResponse()

    async def GetStatus(self, request, context):
        return pb.GetStatusResponse(serving=self.error is None)


@pytest.fixture
async def cells():
    doubles, servers, addresses = [CellDouble(), CellDouble()], [], {}
    for index, double in enumerate(doubles):
        server = RpcServer("127.0.0.1:0")
        server.add(cells_pb2_grpc.add_CellServiceServicer_to_server, double, "gyre.api.rollout.v1.CellService")
        await server.start()
        servers.append(server)
        addresses[f"cell-{index}"] = f"127.0.0.1:{server.port}"
    pool = CellPool(Routing(list(addresses), 8), addresses, "", SystemClock())
    yield pool, doubles, servers
    await pool.close()
    for server in servers:
        await server.stop(0)


@pytest.fixture(params=[True, False], ids=["watched", "whole"])
def work(request):
    """Calls whose tokens are heard as they come, or come in one answer."""

    def made(name: str, arrived_s: float = 0.0, tokens: int = 6) -> Work:
        sampling = Sampling(temperature=1.0, top_p=1.0, max_tokens=tokens, seed=1)
        hear = (lambda ids: None) if request.param else None
        return Work(name, name, np.array([1, 2], np.int32), "", 0, Known(), sampling, (0,), 1, arrived_s, hear)

    return made


async def test_a_call_that_has_ended_is_gone_without_the_collector_of_cycles(cells, work):
    """B1: else each would keep its prompt, some hundred kilobytes, until the collector has looked."""
    pool, _, _ = cells
    pool.set_serving("cell-0", True)
    gc.collect()
    gc.disable()
    try:
        call = work("a")
        await pool.generate(call)
        ended = weakref.ref(call.asked)
        del call
        await until(lambda: ended() is None)
    finally:
        gc.enable()


async def test_a_migrated_call_goes_on_with_the_tokens_it_has(cells, work):
    """A6: the two cells' tokens are one output, with nothing lost or doubled."""
    pool, (_, second), _ = cells
    pool.set_serving("cell-1", True)
    second.hold_at = 2
    call = work("a")
    running = asyncio.create_task(pool.generate(call))
    await second.holds.wait()
    pool.set_serving("cell-1", False)
    pool.set_serving("cell-0", True)
    second.end.set()
    await running
    assert call.ids == [0, 1, 2, 3, 4, 5]
    assert call.logprobs == [0, -1, -2, -3, -4, -5] and call.versions == [7] * 6
    assert (call.cells, call.finish, pool.moved) == (["cell-1", "cell-0"], "length", 1)


async def test_a_cell_that_dies_is_left_and_its_call_goes_on(cells, work):
    pool, (_, second), servers = cells
    for name in ("cell-0", "cell-1"):
        pool.set_serving(name, True)
    second.hold_at = 2
    call = work("a")
    running = asyncio.create_task(pool.generate(call))
    await second.holds.wait()
    await servers[1].stop(0)
    await running
    assert call.ids == [0, 1, 2, 3, 4, 5] and call.cells == ["cell-1", "cell-0"]


async def test_calls_of_a_cell_that_stands_still_go_on_elsewhere(cells, work):
    """A6: its connection stays and it says nothing any more; a call that is given up there ends."""
    pool, (first, second), _ = cells
    pool.set_serving("cell-1", True)
    second.hold_at = 2
    call, given_up = work("a"), work("b")
    running = asyncio.create_task(pool.generate(call))
    ending = asyncio.create_task(pool.generate(given_up))
    await until(lambda: len(pool.running["cell-1"]) == 2 and second.holds.is_set())
    second.error = Conflict("still")
    given_up.is_abandoned = True
    pool.lose("cell-1")
    await ending
    assert given_up.finish == "aborted"
    await until(lambda: pool.waiting == 1)
    pool.set_serving("cell-0", True)
    await running
    assert call.ids == [0, 1, 2, 3, 4, 5] and call.cells == ["cell-1", "cell-0"]
    assert first.seen == ["a"] and second.seen.count("a") == 1


async def test_a_task_that_is_cancelled_is_not_taken_for_a_cell_that_was_lost(cells, work):
    pool, (_, second), _ = cells
    pool.set_serving("cell-1", True)
    second.hold_at = 2
    running = asyncio.create_task(pool.generate(work("a")))
    await second.holds.wait()
    running.cancel()
    pool.lose("cell-1")
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_who_has_waited_longest_goes_first(cells, work):
    """ThunderAgent#46: sixty-four calls without a cell are admitted in the order they came, whatever order they were queued in."""
    pool, _, _ = cells
    pool.routing._capacity = 64
    calls = [work(f"c{index:02d}", arrived_s=float(index), tokens=1) for index in range(64)]
    tasks = [asyncio.create_task(pool.generate(call)) for call in reversed(calls)]
    await until(lambda: pool.waiting == 64)
    placed: list[str] = []
    choose = pool.routing.choose
    pool.routing.choose = lambda session: placed.append(session) or choose(session)
    pool.set_serving("cell-0", True)
    await asyncio.gather(*tasks)
    assert placed == [call.call_id for call in calls]
    assert pool.waiting == 0 and all(call.wait_s > 0 for call in calls)


async def test_calls_wait_for_a_place_while_the_pool_is_away(cells, work):
    """A9, ThunderAgent#46: one cell stays with one place; the line's first gets it, the next when that session is over, without an error."""
    pool, (_, second), _ = cells
    pool.routing._capacity = 1
    pool.set_serving("cell-1", True)
    calls = [work(f"c{index}", arrived_s=float(index), tokens=2) for index in range(3)]
    tasks = [asyncio.create_task(pool.generate(call)) for call in calls]
    await tasks[0]
    assert pool.waiting == 2 and second.seen == ["c0"]
    await pool.generate(again := work("c0", tokens=1))  # its next call keeps its place
    assert again.cells == ["cell-1"] and pool.waiting == 2
    pool.forget("c0")
    await tasks[1]
    assert pool.waiting == 1
    pool.set_serving("cell-0", True)  # the pool is back: nobody waits
    await tasks[2]
    assert [call.ids for call in calls] == [[0, 1]] * 3


async def test_an_abandoned_call_ends_with_what_it_has(cells, work):
    pool, (_, second), _ = cells
    waiting = work("w")
    task = asyncio.create_task(pool.generate(waiting))
    await until(lambda: pool.waiting == 1)
    await pool.abandon(waiting)
    await task
    assert (waiting.finish, waiting.ids, pool.waiting) == ("aborted", [], 0)
    pool.set_serving("cell-1", True)
    second.hold_at = 1
    running = work("r")
    task = asyncio.create_task(pool.generate(running))
    await second.holds.wait()
    await pool.abandon(running)
    await task
    assert running.finish == "aborted" and running.ids == [0]


async def test_a_cell_that_refuses_for_now_is_asked_again_later(cells, work):
    pool, (first, _), _ = cells
    first.error = Conflict("draining")
    pool.set_serving("cell-0", True)
    call = work("a")
    task = asyncio.create_task(pool.generate(call))
    await until(lambda: first.seen and pool.waiting == 1)
    assert not task.done()
    first.error = None
    await task
    assert len(call.ids) == 6


async def test_engines_that_fail_again_and_again_are_an_error_with_a_name(cells, work):
    pool, (first, _), _ = cells
    pool.set_serving("cell-0", True)
    first.error = InvalidInput("bad ids")
    with pytest.raises(InvalidInput, match="bad ids"):
        await pool.generate(work("a"))
    first.error = GyreError("kernel")
    with pytest.raises(Unavailable, match="3 times"):
        await pool.generate(work("b"))
    assert first.seen == ["a", "b", "b", "b"]

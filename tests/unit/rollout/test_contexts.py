"""Of a prompt only what its cell does not know goes there, and what the engine is given is the whole prompt, exactly (B1)."""

import asyncio
import itertools
from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gyre.api.rollout.v1 import cells_pb2_grpc
from gyre.clock import SystemClock
from gyre.errors import NotFound
from gyre.records import Sampling
from gyre.rpc import RpcServer
from services.rollout.cell.bridge import Bridge
from services.rollout.cell.contexts import Contexts, whole
from services.rollout.cell.servicer import CellServicer
from services.rollout.core.routing import Routing
from services.rollout.engine import Chunk
from services.rollout.gateway.pool import KNOWN_TOKENS_MIN, CellPool, Known, Work

IDS = st.lists(st.integers(0, 9), max_size=6)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 20), st.integers(0, 12), IDS, st.lists(st.integers(0, 9), min_size=1, max_size=4)),
        max_size=20,
    )
)
def test_a_prompt_is_what_a_context_had_up_to_any_token_and_what_follows(calls):
    contexts, made = Contexts(), list[tuple[str, list[int]]]()
    for base, kept, ids, output in calls:
        name, before = made[base % len(made)] if made else ("", [])
        kept = min(kept, len(before)) if name else 0
        parent = contexts.find("s", name, kept)
        prompt = whole(parent, kept, np.array(ids, np.int32)).tolist()
        assert prompt == before[:kept] + ids
        made.append((contexts.keep("s", parent, kept, np.array(ids, np.int32), output), prompt + output))
    assert len({name for name, _ in made}) == len(made)
    for name, context in made:
        assert whole(contexts.find("s", name, len(context)), len(context), np.empty(0, np.int32)).tolist() == context


def test_what_is_not_known_is_said_and_the_longest_unused_session_is_forgotten_first():
    contexts, ids = Contexts(tokens_max=10), np.array([1, 2, 3], np.int32)
    first = contexts.keep("a", None, 0, ids, [4])
    second = contexts.keep("b", None, 0, ids, [4])
    for session, name, kept in (("a", first, 5), ("b", first, 4), ("a", Contexts().keep("a", None, 0, ids, [4]), 1)):
        with pytest.raises(NotFound, match="send the whole prompt"):
            contexts.find(session, name, kept)
    assert contexts.find("a", first, 4) is not None
    forgotten = contexts.find("b", second, 4)
    assert contexts.find("a", first, 4) is not None
    contexts.keep("c", None, 0, ids, [4])  # 12 tokens, so b goes
    assert contexts.keep("b", forgotten, 4, ids, [4]) == ""
    with pytest.raises(NotFound):
        contexts.find("b", second, 1)
    assert contexts.find("a", first, 4) is not None


class Engine:
    """Says the token 7 to whatever it is asked, and remembers the prompts."""

    def __init__(self) -> None:
        self.prompts: list[list[int]] = []

    def submit(self, request, on_tokens) -> None:
        self.prompts.append(request.prompt_ids)
        on_tokens(Chunk(request.call_id, [7], [0.0], [1], "stop"))


class Cell(CellServicer):
    """Counts the ids that it is sent."""

    def __init__(self) -> None:
        self.engine, self.sent = Engine(), list[int]()
        super().__init__(self.engine, Bridge(asyncio.get_running_loop()))
        self.is_serving = True

    async def GenerateWhole(self, request, context):
        self.sent.append(len(request.call.prompt) // 4)
        return await super().GenerateWhole(request, context)

    async def Generate(self, request, context):
        self.sent.append(len(request.prompt) // 4)
        async for chunk in super().Generate(request, context):
            yield chunk


@pytest.fixture
async def served():
    """(pool, what makes the cell another process's of the same address)"""
    servers, cells = [], []

    async def begin(port: int = 0) -> int:
        cells.append(Cell())
        servers.append(RpcServer(f"127.0.0.1:{port}"))
        servers[-1].add(cells_pb2_grpc.add_CellServiceServicer_to_server, cells[-1], "gyre.api.rollout.v1.CellService")
        await servers[-1].start()
        return servers[-1].port

    port = await begin()

    async def begin_anew() -> None:
        await servers[-1].stop(0)
        await begin(port)

    pool = CellPool(Routing(["cell-0"], 8), {"cell-0": f"127.0.0.1:{port}"}, "", SystemClock())
    pool.set_serving("cell-0", True)
    yield pool, cells, begin_anew
    await pool.close()
    await servers[-1].stop(0)


LONG = 2 * KNOWN_TOKENS_MIN


@pytest.fixture(params=[True, False], ids=["watched", "whole"])
def call(request):
    serial, sessions = itertools.count(), defaultdict(Known)

    async def made(pool: CellPool, ids: list[int], parent: str = "", kept: int = 0, session: str = "s") -> str:
        hear = (lambda ids: None) if request.param else None
        name, sampling = f"call-{next(serial)}", Sampling(temperature=1.0, top_p=1.0, max_tokens=8, seed=1)
        work = Work(
            name, session, np.array(ids, np.int32), parent, kept, sessions[session], sampling, (0,), 1, 0.0, hear
        )
        await pool.generate(work)
        assert (work.finish, work.ids) == ("stop", [7])
        return name

    made.sessions = sessions
    return made


async def test_a_conversation_goes_to_its_cell_as_what_it_adds(served, call):
    """The second call goes on from the first, the third too, from within it; short prompts and other sessions' are sent whole."""
    pool, (cell,), _ = served
    prompt = list(range(LONG))
    first = await call(pool, prompt)
    await call(pool, [*prompt, 7, 1, 2], first, LONG + 1)
    await call(pool, [*prompt[:-5], 9], first, LONG - 5)
    await call(pool, [*prompt[:10], 9], first, 10)
    await call(pool, [*prompt, 7, 1], first, LONG + 1, session="other")
    assert cell.sent == [LONG, 2, 1, 11, LONG + 2]
    assert cell.engine.prompts == [
        prompt, [*prompt, 7, 1, 2], [*prompt[:-5], 9], [*prompt[:10], 9], [*prompt, 7, 1]
    ]  # fmt: skip


async def test_a_cell_that_began_anew_is_sent_the_whole_prompt(served, call):
    pool, cells, begin_anew = served
    prompt = list(range(LONG))
    first = await call(pool, prompt)
    await begin_anew()
    second = await call(pool, [*prompt, 7, 1], first, LONG + 1)
    await call(pool, [*prompt, 7, 1, 7, 2], second, LONG + 3)
    assert cells[1].sent == [1, LONG + 2, 1]
    assert cells[1].engine.prompts == [[*prompt, 7, 1], [*prompt, 7, 1, 7, 2]]


async def test_a_session_that_was_let_go_begins_with_whole_prompts(served, call):
    """Opened anew its calls may have the ids of others, which were lost with the gateway that made them."""
    pool, (cell,), _ = served
    prompt = list(range(LONG))
    first = await call(pool, prompt)
    call.sessions["s"] = Known()
    await call(pool, [*prompt[::-1], 7, 1], first, LONG + 1)
    assert cell.sent == [LONG, LONG + 2] and cell.engine.prompts[1] == [*prompt[::-1], 7, 1]

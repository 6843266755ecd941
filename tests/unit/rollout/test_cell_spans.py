"""A cell's part in a call that it did not sample whole is a span of the execution's trace (E)."""

import asyncio

import pytest

from gyre.api.rollout.v1 import cells_pb2 as pb
from services.rollout.cell.bridge import Bridge
from services.rollout.cell.servicer import CellServicer
from services.rollout.engine import Chunk
from tests.kept_spans import attributes_of, kept_spans
from tests.support import until

PARENT = "00-" + "ab" * 16 + "-" + "cd" * 8 + "-01"


class Engine:
    """Says what it is given, at once."""

    def __init__(self, *chunks: Chunk) -> None:
        self._chunks = chunks
        self.aborted: list[str] = []

    def submit(self, request, on_tokens) -> None:
        for chunk in self._chunks:
            on_tokens(chunk)

    def abort(self, name: str, why: str) -> None:
        self.aborted.append(name)


class Aborted(Exception):
    pass


class Called:
    """The servicer's context."""

    def invocation_metadata(self):
        return (("authorization", "Bearer x"), ("traceparent", PARENT))

    async def abort(self, code, details, trailing=()):
        raise Aborted(details)


def asked(call_id: str, **more) -> pb.GenerateRequest:
    return pb.GenerateRequest(call_id=call_id, prompt_ids=[5], max_tokens=8, temperature=1.0, top_p=1.0, **more)


def whole_of(call_id: str) -> pb.GenerateWholeRequest:
    return pb.GenerateWholeRequest(call=asked(call_id, chunk_tokens=1))


async def served(servicer: CellServicer, request: pb.GenerateRequest) -> None:
    async for _ in servicer.Generate(request, Called()):
        pass


def cell(*chunks: Chunk) -> CellServicer:
    servicer = CellServicer(Engine(*chunks), Bridge(asyncio.get_running_loop()))
    servicer.is_serving = True
    return servicer


async def test_each_part_of_a_call_says_how_it_ended_and_how_much_it_sampled():
    """A call that goes on at another cell has a part at each: the first here migrated after three tokens."""
    first = Chunk("c", [1, 2], [0.0, 0.0], [7, 7])
    moved, last = Chunk("c", [3], [0.0], [7], "migrated"), Chunk("c", [4], [0.0], [8], "stop")
    with kept_spans() as kept:
        await served(cell(first, moved), asked("c1"))
        await served(cell(last), asked("c1", resume_ids=[1, 2, 3]))
    assert {(one.name, one.trace_id.hex(), one.parent_span_id.hex(), one.status.code) for one in kept.spans} == {
        ("Generate", "ab" * 16, "cd" * 8, 0)
    }
    assert [attributes_of(one) for one in kept.spans] == [
        {"gyre.call": "c1", "gyre.finish": "migrated", "gen_ai.usage.output_tokens": 3},
        {"gyre.call": "c1", "gyre.finish": "stop", "gen_ai.usage.output_tokens": 1},
    ]


async def test_a_whole_answer_has_all_parts_of_the_call_and_is_given_up_with_its_caller():
    """A6: what the engine said in several chunks is one answer; an engine's error is one; a gateway that goes away ends the call."""
    whole = cell(Chunk("c", [1, 2], [-0.5, -0.25], [7, 7], reused_tokens=3), Chunk("c", [3], [0.0], [8], "migrated"))
    said = (await whole.GenerateWhole(whole_of("c1"), Called())).output
    assert (list(said.ids), list(said.logprobs), list(said.versions)) == ([1, 2, 3], [-0.5, -0.25, 0.0], [7, 7, 8])
    assert (said.finish_reason, said.reused_tokens) == ("migrated", 3)
    with pytest.raises(Aborted, match="out of memory"):
        await cell(Chunk("c", [], [], [], "error", detail="out of memory")).GenerateWhole(whole_of("c1"), Called())
    left = cell(Chunk("c", [1], [0.0], [7]))
    task = asyncio.create_task(left.GenerateWhole(whole_of("c2"), Called()))
    await until(lambda: left._names)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert left._engine.aborted == ["c2.0"] and not left._names


async def test_a_call_that_one_cell_samples_whole_has_no_span_of_its_own():
    """The gateway's `chat policy` says its cell and how long it waited."""
    with kept_spans() as kept:
        await served(cell(Chunk("c", [1], [0.0], [7], "length")), asked("c1"))
    assert kept.spans == []


async def test_a_part_that_fails_or_is_left_ends_its_span_too():
    """An engine's error, and a gateway that went away in the middle."""
    failing = cell(Chunk("c", [], [], [], "error", detail="out of memory"))
    left = cell(Chunk("c", [1], [0.0], [7]))
    with kept_spans() as kept:
        with pytest.raises(Aborted):
            await anext(failing.Generate(asked("c1"), Called()))
        stream = left.Generate(asked("c2"), Called())
        await anext(stream)
        await stream.aclose()
    failed, ended = kept.spans
    assert (failed.status.code, failed.status.message) == (2, "out of memory")
    assert attributes_of(ended) == {"gyre.call": "c2", "gyre.finish": "left", "gen_ai.usage.output_tokens": 1}

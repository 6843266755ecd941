"""Model calls with doubles of pool and bus: what is recorded, when, and what the harness is told (B1, C6)."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Awaitable
from functools import cache, partial

import pytest

from gyre.clock import ManualClock
from gyre.config import Config
from gyre.errors import Conflict, InvalidInput, Overloaded, Unavailable
from gyre.records import CallRecorded, array
from services.rollout.core.budget import CallsOver, TokensOver, TurnsOver
from services.rollout.core.classify import Verdict
from services.rollout.core.keys import Claims
from services.rollout.core.leases import Attempts
from services.rollout.core.options import BadRequest
from services.rollout.core.reply import ChatStream, Head
from services.rollout.core.routing import Routing
from services.rollout.gateway import calling, telling
from services.rollout.gateway.calls import ModelCalls
from services.rollout.gateway.running import Draft, ExecutionOver
from tests.support import until

from .builders import request, tool_text

START = [{"role": "user", "content": "go"}]
MAIN = partial(Verdict, "main", "a-rule", "")


class PoolDouble:
    """Samples a given text at once, or when told to."""

    def __init__(self, model) -> None:
        self.model, self.text, self.finish = model, "hello", "stop"
        self.routing = Routing(["cell-0"], 8)
        self.waiting = 0
        self.go = asyncio.Event()
        self.go.set()
        self.seen = []
        self.forget = self.routing.forget

    async def generate(self, work) -> None:
        self.seen.append(work)
        await self.go.wait()
        work.ids = self.model.template.encode(self.text)
        if self.finish == "stop" and work.ids[-1:] not in [[token] for token in self.model.stop_ids]:
            work.ids.append(self.model.stop_ids[0])
        work.logprobs, work.versions = [-0.5] * len(work.ids), [3] * len(work.ids)
        work.cells, work.finish = ["cell-0"], "aborted" if work.is_abandoned else self.finish
        if work.on_tokens is not None and (kept := work.on_tokens(work.ids)) is not None:
            del work.ids[kept:], work.logprobs[kept:], work.versions[kept:]

    async def abandon(self, work) -> None:
        work.is_abandoned = True
        self.go.set()


class BusDouble:
    def __init__(self) -> None:
        self.records: list[CallRecorded] = []
        self.asked: list[CallRecorded] = []
        self.stored = asyncio.Event()
        self.stored.set()

    async def publish(self, record, traceparent: str = "") -> int:
        return await (await self.give(record, traceparent))

    async def give(self, record, traceparent: str = "") -> Awaitable[int]:
        self.asked.append(record)
        return self._storing(record)

    async def _storing(self, record) -> int:
        await self.stored.wait()
        self.records.append(record)
        return len(self.records)


@pytest.fixture
def made(model):
    pool, bus, attempts = PoolDouble(model), BusDouble(), Attempts()
    attempts.leased("g000001-e0", 1)
    return ModelCalls(Config(), model, pool, bus, ManualClock(100.0), attempts), pool, bus, attempts


def claims(**changes) -> Claims:
    fields = {
        "execution_id": "g000001-e0", "attempt": 1, "group_id": "g000001", "purpose": "train", "seed": 5, "temperature": 1.0,
        "top_p": 1.0, "turns_max": 3, "context_tokens_max": 200, "output_tokens_max": 50,
    }  # fmt: skip
    return Claims(**{**fields, **changes})


async def test_the_reply_leaves_after_its_record_is_stored(made):
    """B1."""
    calls, _, bus, _ = made
    bus.stored.clear()
    running = calls.begin(claims(), request(START), MAIN)
    await asyncio.sleep(0.02)
    assert not running.done.done()
    bus.stored.set()
    reply = await running.done
    record = bus.records[0]
    assert reply.parsed.content == "hello" and record.delivered
    assert (record.call_id, record.finish_reason) == ("g000001-e0-a1-c0", "stop")
    assert (record.role, record.role_rule) == ("main", "a-rule")
    assert set(array(record.versions, "int32")) == {3}, "AReaL's version race: the label is the engine's"


async def test_a_retry_while_the_first_runs_is_the_same_call_and_one_after_it_gets_the_record(made):
    """AReaL#1498: one record, the same reply for all three."""
    calls, pool, bus, _ = made
    pool.go.clear()
    first = calls.begin(claims(), request(START), MAIN)
    assert calls.begin(claims(), request([dict(START[0])], model="alias"), MAIN) is first
    pool.go.set()
    reply = await first.done
    late = await calls.begin(claims(), request(START), MAIN).done
    assert late.body() | {"model": reply.model} == reply.body()
    assert len(bus.records) == len(pool.seen) == 1


async def test_training_is_drawn_at_the_tasks_temperature_and_evaluation_may_ask_for_less(made):
    calls, pool, _, _ = made
    asked = {"temperature": 0.2, "top_p": 0.5, "max_tokens": 1000}
    await calls.begin(claims(), request(START, **asked), MAIN).done
    await calls.begin(claims(purpose="evaluation"), request([*START, *START], **asked), MAIN).done
    train, evaluation = (work.sampling for work in pool.seen)
    assert (train.temperature, train.top_p, train.max_tokens) == (1.0, 1.0, 50)
    assert (evaluation.temperature, evaluation.top_p) == (0.2, 0.5)
    assert train.seed != evaluation.seed


async def test_bounds_of_an_execution_are_kept(made):
    """Turns, context, fences: each with an error of its own."""
    calls, pool, bus, attempts = made
    with pytest.raises(BadRequest) as error:
        calls.begin(claims(context_tokens_max=5), request(START), MAIN)
    assert error.value.error_code == "context_length_exceeded"
    size = len(calls.model.renderer.whole(request(START).messages, request(START).tools))
    pool.finish = "length"
    await calls.begin(claims(context_tokens_max=size + 7), request(START), MAIN).done
    assert pool.seen[0].sampling.max_tokens == 7 and bus.records[0].finish_reason == "context"
    with pytest.raises(TurnsOver):
        calls.begin(claims(turns_max=1), request([*START, *START]), MAIN)
    attempts.leased("g000001-e0", 2)
    with pytest.raises(ExecutionOver):
        calls.begin(claims(), request(START), MAIN)


async def test_closing_an_execution_aborts_and_records_its_calls_first(made):
    """C6: the books count exactly the records on the bus; the session is freed."""
    calls, pool, bus, _ = made
    await calls.begin(claims(), request(START), MAIN).done
    pool.go.clear()
    running = calls.begin(claims(), request([*START, *START]), MAIN)
    await asyncio.sleep(0)
    totals = await calls.close("g000001-e0-a1")
    assert (totals.turns, totals.calls) == (1, 2) == (1, len(bus.records))
    assert (bus.records[1].finish_reason, bus.records[1].delivered) == ("cancelled", False)
    assert totals.tokens_sampled == sum(len(record.output_ids) // 4 for record in bus.records)
    assert isinstance(running.done.exception(), ExecutionOver) and calls.sessions == 0


async def test_the_budget_of_an_execution_is_an_ending_of_its_own(made):
    """B4, C6: what is sampled in all, calls begun, calls at once; who must end it is told, for which limit."""
    calls, pool, _, _ = made
    told = []
    calls.on_budget = lambda claims, limit: told.append(limit)
    await calls.begin(claims(tokens_max=1), request(START), MAIN).done
    assert pool.seen[0].sampling.max_tokens == 1, "the last call is cut where the tokens end"
    following = request([*START, {"role": "user", "content": "more"}])
    with pytest.raises(TokensOver):
        calls.begin(claims(tokens_max=1), following, MAIN)
    with pytest.raises(CallsOver):
        calls.begin(claims(calls_max=1), following, MAIN)
    assert told == ["tokens", "calls"]
    await calls.begin(
        claims(calls_max=1, tokens_max=1), request(START), MAIN
    ).done  # a retry is answered from its record
    pool.go.clear()
    under_way = calls.begin(claims(concurrency_max=1), following, MAIN)
    with pytest.raises(Overloaded, match="at most 1 may"):
        calls.begin(claims(concurrency_max=1), request([*START, *START]), MAIN)
    pool.go.set()
    await under_way.done
    assert told == ["tokens", "calls"], "too many at once ends nothing"


async def test_a_retry_is_the_recorded_call_also_where_the_executions_tokens_run_out(made):
    """B1: it may have fewer tokens now than it had then, or none; what a new call could still be sampled is no more than that had."""
    calls, pool, bus, _ = made
    first = await calls.begin(claims(tokens_max=16), request(START, max_tokens=15), MAIN).done
    size = len(array(bus.records[0].output_ids, "int32"))
    assert pool.seen[0].sampling.max_tokens == 15 > 16 - size
    again = await calls.begin(claims(tokens_max=16), request(START, max_tokens=15), MAIN).done
    assert again == first and len(bus.records) == 1
    less = await calls.begin(claims(tokens_max=16), request(START, max_tokens=13), MAIN).done
    assert less.call_id != first.call_id, "another bound than its own is another call"
    pool.text, pool.finish = "hello " * 20, "length"
    following = request([*START, {"role": "user", "content": "more"}])
    used = 2 * size
    cut = await calls.begin(claims(tokens_max=used + 30), following, MAIN).done
    assert pool.seen[-1].sampling.max_tokens == 30
    assert (await calls.begin(claims(tokens_max=used + 30), following, MAIN).done).call_id == cut.call_id


async def test_a_session_that_another_gateway_writes_is_let_go(made):
    """State and restarts: the log refuses the record, the harness is told to ask again, what is known here is forgotten, what cells know of its
    calls with it: opened anew they may be others of the same ids."""
    calls, pool, bus, _ = made
    calls.restore("g000001-e0-a1", [], newest=4)

    async def refuse(record, traceparent="", after=None):
        assert after == 4
        raise Conflict("somebody else wrote there")

    bus.publish = refuse
    with pytest.raises(Unavailable, match="ask again"):
        await calls.begin(claims(), request(START), MAIN).done
    assert calls.sessions == 0
    del bus.publish
    for content in ("anew", "and on"):
        await calls.begin(claims(), request([{"role": "user", "content": content}]), MAIN).done
    lost, anew, on = (work.contexts for work in pool.seen)
    assert lost is not anew and anew is on


async def test_spans_carry_the_words_of_the_genai_conventions(made, monkeypatch):
    """E: each call is a span of its execution's trace."""
    calls, _, _, _ = made
    spans = []
    monkeypatch.setattr(telling, "emit_span", lambda *args, **attributes: spans.append((args, attributes)))
    await calls.begin(claims(traceparent="tp"), request(START), MAIN).done
    args, attributes = (await until(lambda: spans))[0]
    assert args[3] == "tp" and attributes["gen_ai.operation.name"] == "chat"
    assert attributes["gyre.policy_version.min"] == attributes["gyre.policy_version.max"] == 3


async def test_a_tool_call_is_a_tool_call_plain_and_streamed(made):
    """B2: the arguments' text is the model's own, in the reply and in the record."""
    calls, pool, bus, _ = made
    pool.text = "see\n" + tool_text("read_file", '{"path":  "a.py"}')
    reply = await calls.begin(claims(), request(START, stream=True), MAIN).done
    body = reply.body()
    call = body["choices"][0]["message"]["tool_calls"][0]
    assert call["function"] == {"name": "read_file", "arguments": '{"path":  "a.py"}'}
    assert body["choices"][0]["finish_reason"] == "tool_calls" and bus.records[0].tool_payloads == {
        call["id"]: '{"path":  "a.py"}'
    }
    stream = ChatStream(
        Head(reply.call_id, reply.model, reply.created_s, 1), request(START, stream_options={"include_usage": True})
    )
    stream.more("", "se")
    events = [json.loads(line[6:]) for line in stream.close(reply).decode().split("\n\n")[:-2]]
    assert events[0]["choices"][0]["delta"] == {"content": "e"}
    assert events[1]["choices"][0]["delta"]["tool_calls"][0] == {"index": 0, **call}
    assert events[-1]["choices"] == [] and events[-1]["usage"] == body["usage"]


def test_the_gateway_starts_without_torch_and_transformers():
    """E: the control plane needs neither."""
    code = "import sys, services.rollout.gateway.app; print([m for m in ('torch', 'transformers') if m in sys.modules])"
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"
    )


async def test_while_a_record_is_stored_its_reply_is_made_ready_and_nothing_of_it_is_known(made):
    """What its session knows, what is counted and what is said all wait for the bus; the bytes of the reply do not."""
    calls, _, bus, _ = made
    bus.stored.clear()
    asked_roles, said = [], []

    def role() -> Verdict:
        asked_roles.append(1)
        return MAIN()

    running = calls.begin(claims(), request(START), cache(role))
    running.drafts.append(draft := Draft(lambda reply: said.append(reply) or b"bytes"))
    await until(lambda: said)
    session = calls._entry(running.work.session).session
    assert not running.done.done() and not running.is_recorded
    assert (calls.recorded, session.turns, len(session.trie)) == (0, 0, 0)
    bus.stored.set()
    reply = await running.done
    assert draft.of(reply) == b"bytes" and said == [reply], "made once"
    assert (calls.recorded, session.turns, len(session.trie), asked_roles) == (1, 1, 1, [1])


async def test_a_reply_that_cannot_be_said_is_on_record_all_the_same(made):
    """Whoever asked in words that the reply has no form in is told so; the record stands and others have their answer."""
    calls, _, bus, _ = made

    def refuse(reply) -> bytes:
        raise RuntimeError("no such form")

    running = calls.begin(claims(), request(START), MAIN)
    running.drafts.append(draft := Draft(refuse))
    reply = await running.done
    assert len(bus.records) == 1 and reply.parsed.content == "hello"
    with pytest.raises(RuntimeError, match="no such form"):
        draft.of(reply)


async def test_a_call_whose_role_cannot_be_told_is_on_record_as_unknown(made, caplog):
    """B5: a fault of the rules costs no sampled call; it is never trained, and the fault is told."""
    calls, _, bus, _ = made

    def broken() -> Verdict:
        raise ZeroDivisionError("a rule")

    reply = await calls.begin(claims(), request(START), broken).done
    assert reply.parsed.content == "hello" and bus.records[0].role == "unknown"
    assert "has no role" in caplog.text and "ZeroDivisionError" in caplog.text


@pytest.mark.parametrize("broken", ["reply_of", "ready"])
async def test_what_is_on_record_is_known_whatever_cannot_be_made_of_it(made, monkeypatch, broken):
    """C6: the books count the records on the bus, the retry is answered from it, the next call has a name of its own."""
    calls, pool, bus, _ = made
    session = calls._entry("g000001-e0-a1").session

    def fail(*_):
        raise RuntimeError("broken")

    with monkeypatch.context() as patch:
        patch.setattr(*((calling, "reply_of") if broken == "reply_of" else (session, "ready")), fail)
        running = calls.begin(claims(), request(START), MAIN)
        if broken == "reply_of":
            with pytest.raises(InvalidInput, match="given up"):
                await running.reply()
            with pytest.raises(RuntimeError):
                await running.task
        else:
            assert (await running.reply()).parsed.content == "hello"
    assert (session.calls, session.turns, calls.recorded, len(session.trie), len(bus.records)) == (1, 1, 1, 1, 1)
    again = await calls.begin(claims(), request(START), MAIN).done
    assert (again.call_id, again.parsed.content, len(pool.seen)) == (bus.records[0].call_id, "hello", 1)
    await calls.begin(claims(), request([*START, *START]), MAIN).done
    assert [record.call_index for record in bus.records] == [0, 1]

"""One call, from its prompt to its reply: at a cell, on record, then said.

    prompt ──▶ cell ··· sampling ··· ──▶ record ──▶ bus ··· storing ··· ──▶ session, reply
                        its role                            the reply's bytes, what its session will know of it

What nobody waits for is done while somebody else works: below the line that its harness waits for is only what must be.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from gyre.bus import Bus
from gyre.clock import Clock
from gyre.errors import Conflict, GyreError, InvalidInput, NotFound, Unavailable
from gyre.ids import call_id
from gyre.records import CallRecorded, Sampling, encode
from services.rollout.core.classify import Verdict
from services.rollout.core.keys import Claims
from services.rollout.core.reply import Reply
from services.rollout.core.request import ChatRequest
from services.rollout.core.session import Model, Prompt, Ready
from services.rollout.core.streaming import ends_early
from services.rollout.core.toolcalls import Parsed
from services.rollout.gateway.pool import CellPool, Work
from services.rollout.gateway.running import ExecutionOver, Open, Running
from services.rollout.gateway.telling import LATER_S, Idle, record_of, reply_of, trace_call

log = logging.getLogger(__name__)

STREAM_CHUNK_TOKENS = 8


@dataclass(frozen=True, slots=True)
class Call:
    """A call that begins."""

    claims: Claims
    request: ChatRequest
    role: Callable[[], Verdict]
    """Asked once the call is at its cell; the answer is always the same."""
    entry: Open
    key: tuple[bytes, str]
    """What a retry joins it by."""
    prompt: Prompt
    sampling: Sampling
    is_context_bound: bool


class Calling:
    """All calls under way."""

    def __init__(self, model: Model, pool: CellPool, bus: Bus, clock: Clock, lose: Callable[[str], None]) -> None:
        """`lose` is told of a session that another gateway writes."""
        self._model, self._pool, self._bus, self._clock, self._lose = model, pool, bus, clock, lose
        self.held: set[str] = set()
        """Samples of suspended executions (C2)."""
        self.idle = Idle()
        self.recorded = 0
        self.tokens_sampled = 0

    def start(self, call: Call) -> Running:
        claims, session, now_s = call.claims, call.entry.session, self._clock.now_s()
        index, session.next_index = session.next_index, session.next_index + 1
        name, loop = call_id(session.sample_id, index), asyncio.get_running_loop()
        is_read = call.request.stream or ends_early(call.sampling)
        running = Running(
            name, call.request.model or "policy", int(now_s), loop.create_future(),
            prompt_tokens=len(call.prompt.ids), reader=self._model.reader(call.sampling) if is_read else None,
        )  # fmt: skip
        running.done.add_done_callback(lambda done: done.cancelled() or done.exception())
        running.work = Work(
            name, session.sample_id, call.prompt.ids, call.prompt.parent.call_id, call.prompt.kept,
            call.entry.contexts, call.sampling, self._model.stop_ids,
            STREAM_CHUNK_TOKENS if is_read else 0, now_s, partial(_hear, running) if is_read else None, claims.traceparent,
        )  # fmt: skip
        if session.sample_id not in self.held:
            running.going.set()
        call.entry.running[call.key] = running
        call.entry.live.add(running)
        self.idle.ends(session.sample_id, now_s)
        running.task = loop.create_task(self._run(call, running, index))
        loop.call_later(LATER_S, call.role)
        return running

    def answered(self, entry: Open, key: tuple[bytes, str], record: CallRecorded, request: ChatRequest) -> Running:
        """A retry whose call is on record gets the recorded reply, when its execution is not suspended."""
        done: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        model = request.model or "policy"
        reply = reply_of(record, model, self._model.again(record))
        running = Running(
            record.call_id, model, reply.created_s, done, is_recorded=True, prompt_tokens=record.prompt_tokens
        )
        if entry.session.sample_id in self.held:
            entry.running[key] = running
            entry.live.add(running)
            running.task = asyncio.create_task(_answer_later(entry, key, running, reply))
        else:
            done.set_result(reply)
        return running

    async def abandon(self, running: Running) -> None:
        """End a call with the tokens it has; the pool does not begin one that waited."""
        running.settled.set()
        running.going.set()
        if running.work is not None and not running.is_sampled:
            await self._pool.abandon(running.work)

    async def _run(self, call: Call, running: Running, index: int) -> None:
        entry, work, ended_at_s = call.entry, running.work, 0.0
        assert work is not None
        try:
            await running.going.wait()
            await self._pool.generate(work)
            if not work.ids:
                raise NotFound(f"{work.call_id} was abandoned before a token was sampled")
            parsed = self._model.read(work.ids, work.call_id, work.sampling, call.request.tools)
            running.is_sampled, at_s = True, self._clock.now_s()
            await running.settled.wait()
            record = record_of(
                call.claims, _role(call), call.prompt, work, index, parsed, call.is_context_bound, running.watchers > 0, at_s
            )  # fmt: skip
            reply = await self._store(call, running, record, parsed)
            ended_at_s = self._clock.now_s()
            trace_call(call.claims, record, ended_at_s)
            await running.going.wait()
            if record.finish_reason == "cancelled" or entry.closing:
                raise ExecutionOver(f"{work.call_id} was abandoned")
            running.done.set_result(reply)
        except Conflict as error:
            self._lose(entry.session.sample_id)
            running.done.set_exception(
                Unavailable(f"this session is served by another gateway now; ask again: {error}")
            )
        except GyreError as error:
            if not isinstance(error, NotFound | ExecutionOver):
                log.warning("%s failed: %s", work.call_id, error)
            running.done.set_exception(error)
        except ValueError as error:  # of something in the request: asked again it would be sampled again
            log.warning("%s cannot be put on record: %s", work.call_id, error)
            running.done.set_exception(InvalidInput(f"the call cannot be put on record: {error}"))
        except BaseException as error:
            running.done.set_exception(InvalidInput(f"the call was given up: {error!r}"))
            raise
        finally:
            if entry.running.get(call.key) is running:
                del entry.running[call.key]
            entry.live.discard(running)
            if not entry.live and not entry.closing:
                at_s, claims = ended_at_s or self._clock.now_s(), call.claims
                self.idle.begins(entry.session.sample_id, at_s, claims.traceparent, claims.execution_id, claims.attempt)
            running.tell()

    async def _store(self, call: Call, running: Running, record: CallRecorded, parsed: Parsed) -> Reply:
        """Durable, and known to its session, when it returns. What follows is made ready while the bus stores: nothing of it is known, or leaves,
        before; and whatever cannot be made of it, what is on record is known."""
        stored = await call.entry.put(self._bus, record, call.claims.traceparent)
        ready: Ready | None = None
        try:
            try:
                ready = call.entry.session.ready(record, self._model, parsed)
            except Exception:
                log.exception("%s will not be known again where it comes back", record.call_id)
                ready = Ready(parsed, packed=encode(record))
            reply = reply_of(record, running.model, parsed)
            running.draft(reply)
        finally:
            await stored
            call.entry.session.take(record, self._model, ready)
            running.is_recorded = True
            self.recorded += 1
            self.tokens_sampled += len(record.output_ids) // 4
        return reply


def _role(call: Call) -> Verdict:
    """What is sampled is not given up for what it is called: where the rules fail it is unknown, and never trained."""
    try:
        return call.role()
    except Exception:
        log.exception("a call of %s has no role", call.claims.execution_id)
        return Verdict("unknown", "", "")


async def _answer_later(entry: Open, key: tuple[bytes, str], running: Running, reply: Reply) -> None:
    await running.going.wait()
    del entry.running[key]
    entry.live.discard(running)
    running.done.set_result(reply)
    running.tell()


def _hear(running: Running, ids: Sequence[int]) -> int | None:
    kept = running.reader.push(ids)
    running.changed.set()
    return kept

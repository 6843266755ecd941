"""Model calls of all executions: joined by retries, recorded before they are answered, abandoned when nobody waits."""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

from gyre.bus import Bus
from gyre.clock import Clock
from gyre.config import Config
from gyre.errors import GyreError, InvalidInput, NotFound, Overloaded
from gyre.ids import call_id, sample_id, seed_for
from gyre.records import CallRecorded, Sampling, pack
from gyre.telemetry import emit_span
from services.rollout.core.classify import Verdict
from services.rollout.core.keys import Claims
from services.rollout.core.leases import Attempts
from services.rollout.core.options import BadRequest
from services.rollout.core.reply import Reply
from services.rollout.core.request import ChatRequest
from services.rollout.core.session import Model, Prompt, Session
from services.rollout.core.streaming import OutputReader
from services.rollout.core.toolcalls import Parsed
from services.rollout.gateway.pool import CellPool, Work

log = logging.getLogger(__name__)

RETRY_GRACE_S = 2.0
"""A call whose harness hung up goes on for this long: clients hang up when their own time-out strikes and ask again at once, and
the retry then finds the same call instead of starting over (AReaL#1498)."""
STREAM_CHUNK_TOKENS = 8
SESSION_CALLS_MAX = 32
"""Calls of one execution at once; sub-agents of today's harnesses stay well below."""
CALLS_WAITING_MAX = 4096


class ExecutionOver(GyreError):
    """The key's attempt has ended or is fenced."""

    code = "execution_over"


class TurnsOver(GyreError):
    """The execution has made its turns."""

    code = "turns_exceeded"


@dataclass(eq=False)
class Running:
    """One call under way (or answered from its record), watched by one request or, after retries, several."""

    call_id: str
    model: str
    created_s: int
    done: asyncio.Future[Reply]
    work: Work | None = None
    task: asyncio.Task | None = None
    watchers: int = 0
    prompt_tokens: int = 0
    reader: OutputReader | None = None
    """What is certain of a call under way (streams)."""
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    abandoning: asyncio.Task | None = None
    is_recorded: bool = False
    """Sampled and on record; only its answer is held back."""
    going: asyncio.Event = field(default_factory=asyncio.Event)
    """Set unless its execution is suspended: the call does not begin, or is not answered, before."""


@dataclass(eq=False)
class _Open:
    session: Session
    running: dict[tuple[bytes, str], Running] = field(default_factory=dict)
    """What a retry may join."""
    live: set[Running] = field(default_factory=set)
    """All calls that are not on record yet, abandoned ones too."""
    closing: bool = False


@dataclass(frozen=True, slots=True)
class Totals:
    """The gateway's books of one attempt (C6)."""

    turns: int = 0
    calls: int = 0
    tokens_sampled: int = 0
    model_wait_s: float = 0.0


class ModelCalls:
    """All sessions of unfinished executions. Memory is bounded by what is in flight: `close` frees a session."""

    def __init__(
        self, config: Config, model: Model, pool: CellPool, bus: Bus, clock: Clock, attempts: Attempts
    ) -> None:
        self._config = config
        self.model = model
        self._pool = pool
        self._bus = bus
        self._clock = clock
        self._attempts = attempts
        self._open: dict[str, _Open] = {}
        self._held: set[str] = set()
        """Samples of suspended executions (C2)."""
        self.recorded = 0
        self.tokens_sampled = 0

    @property
    def sessions(self) -> int:
        return len(self._open)

    def restore(self, session: Session) -> None:
        """A session rebuilt from its records."""
        self._open[session.sample_id] = _Open(session)

    def begin(self, claims: Claims, request: ChatRequest, role: Verdict) -> Running:
        """The call of this request: a new one, or the one a retry belongs to. Answers at once; `done` has the reply.

        Raises ExecutionOver, TurnsOver, Overloaded, InvalidInput (BadRequest with its place)."""
        sample = sample_id(claims.execution_id, claims.attempt)
        if not self._attempts.is_current(claims.execution_id, claims.attempt):
            raise ExecutionOver(f"{sample} is over or a newer attempt runs; this key opens nothing any more")
        entry = self._open.get(sample)
        if entry is None:
            entry = self._open[sample] = _Open(Session(sample))
        if entry.closing:
            raise ExecutionOver(f"{sample} is ending")
        prompt = entry.session.prompt(request, self.model)
        key = (prompt.digest, request.variant())
        running = entry.running.get(key)
        if running is not None and not (running.work is not None and running.work.is_abandoned):
            return running
        sampling, is_context_bound = self._sampling(claims, request, prompt, entry.session)
        wanted = {name: getattr(sampling, name) for name in sampling.__struct_fields__ if name != "seed"}
        if (record := entry.session.recorded(prompt.digest, wanted)) is not None:
            return self._answered(entry, key, record, request)
        self._check_room(claims, entry)
        return self._start(claims, request, role, entry, key, prompt, sampling, is_context_bound)

    def count_tokens(self, request: ChatRequest) -> int:
        """Of the whole prompt, rendered anew. Raises InvalidInput when the template refuses it."""
        return len(self.model.renderer.whole(request.messages, request.tools))

    def hang_up(self, running: Running) -> None:
        """A watcher went away; when it was the last one the call ends soon, unless a retry takes it over."""
        if running.work is not None and running.watchers == 0 and not running.done.done():
            asyncio.get_running_loop().call_later(RETRY_GRACE_S, self._abandon_unwatched, running)

    def hold(self, sample: str) -> None:
        """The execution is suspended: what begins from here on waits, what is being sampled is recorded and answered later; its place at a
        cell is for others."""
        self._held.add(sample)
        if (entry := self._open.get(sample)) is None:
            return
        for running in entry.live:
            running.going.clear()
        if not entry.live:
            self._pool.forget(sample)

    def go_on(self, sample: str) -> None:
        """The execution is resumed."""
        self._held.discard(sample)
        if (entry := self._open.get(sample)) is not None:
            for running in entry.live:
                running.going.set()

    async def close(self, sample: str) -> Totals:
        """The attempt ends: abort and record its running calls, free its session."""
        self._held.discard(sample)
        entry = self._open.get(sample)
        if entry is None:
            return Totals()
        entry.closing = True
        live = list(entry.live)
        await asyncio.gather(*(self._abandon(running) for running in live))
        if tasks := [running.task for running in live if running.task is not None]:
            await asyncio.wait(tasks)
        self._open.pop(sample, None)
        self._pool.forget(sample)
        session = entry.session
        return Totals(session.turns, session.calls, session.tokens_sampled, session.model_wait_s)

    def _check_room(self, claims: Claims, entry: _Open) -> None:
        unrecorded = sum(not running.is_recorded for running in entry.running.values())
        if entry.session.turns + unrecorded >= claims.turns_max:
            raise TurnsOver(f"this execution has made its {claims.turns_max} turns")
        if len(entry.live) >= SESSION_CALLS_MAX:
            raise Overloaded(f"{len(entry.live)} calls of this execution are running; at most {SESSION_CALLS_MAX} may")
        if self._pool.waiting >= CALLS_WAITING_MAX:
            raise Overloaded(f"{self._pool.waiting} calls wait for a cell", retry_after_s=2.0)

    def _sampling(
        self, claims: Claims, request: ChatRequest, prompt: Prompt, session: Session
    ) -> tuple[Sampling, bool]:
        """Parameters inside the execution's bounds, and whether the context bounds the output.

        Training samples are drawn at the task's own temperature and top_p whatever the harness asks: the loss assumes it.
        Evaluations may ask for less of either."""
        context_max = min(claims.context_tokens_max, self._config.rollout.context_max)
        room = context_max - len(prompt.ids)
        if room < 1:
            raise BadRequest(
                f"prompt is too long: {len(prompt.ids)} tokens > {context_max - 1} maximum; the context holds {context_max} with the reply",
                "messages", "context_length_exceeded",
            )  # fmt: skip
        temperature, top_p = claims.temperature, claims.top_p
        if claims.purpose == "evaluation":
            temperature = min(temperature, request.temperature if request.temperature is not None else temperature)
            top_p = max(1e-6, min(top_p, request.top_p if request.top_p is not None else top_p))
        asked = min(request.max_tokens or claims.output_tokens_max, claims.output_tokens_max)
        sampling = Sampling(
            temperature=temperature,
            top_p=top_p,
            max_tokens=min(asked, room),
            seed=seed_for(claims.seed, session.next_index),
            stop_sequences=list(request.stop),
            is_one_call=request.is_one_call,
            prefix=self.model.prefix(request.force),
        )
        return sampling, room < asked

    def _start(
        self, claims: Claims, request: ChatRequest, role: Verdict, entry: _Open, key: tuple[bytes, str], prompt: Prompt,
        sampling: Sampling, is_context_bound: bool,
    ) -> Running:  # fmt: skip
        session, now_s = entry.session, self._clock.now_s()
        index, session.next_index = session.next_index, session.next_index + 1
        name = call_id(session.sample_id, index)
        running = Running(
            name, request.model or "policy", int(now_s), asyncio.get_running_loop().create_future(),
            prompt_tokens=len(prompt.ids), reader=self.model.reader(sampling),
        )  # fmt: skip
        is_read = request.stream or running.reader.is_watching
        running.done.add_done_callback(lambda done: done.cancelled() or done.exception())
        running.work = Work(
            name, session.sample_id, prompt.ids.tolist(), sampling, self.model.stop_ids,
            STREAM_CHUNK_TOKENS if is_read else 0, now_s, partial(self._hear, running) if is_read else None,
            claims.traceparent,
        )  # fmt: skip
        if session.sample_id not in self._held:
            running.going.set()
        entry.running[key] = running
        entry.live.add(running)
        running.task = asyncio.create_task(
            self._run(claims, role, entry, key, prompt, running, index, is_context_bound)
        )
        return running

    async def _run(
        self, claims: Claims, role: Verdict, entry: _Open, key: tuple[bytes, str], prompt: Prompt, running: Running, index: int,
        is_context_bound: bool,
    ) -> None:  # fmt: skip
        work = running.work
        assert work is not None
        try:
            await running.going.wait()
            await self._pool.generate(work)
            if not work.ids:
                raise NotFound(f"{work.call_id} was abandoned before a token was sampled")
            parsed = self.model.read(work.ids, work.call_id, work.sampling)
            record = self._record(claims, role, prompt, running, index, parsed, is_context_bound)
            await self._bus.publish(record, traceparent=claims.traceparent)
            entry.session.take(record, self.model, parsed)
            running.is_recorded = True
            self.recorded += 1
            self.tokens_sampled += len(work.ids)
            self._trace(claims, record)
            await running.going.wait()
            if record.finish_reason == "cancelled" or entry.closing:
                raise ExecutionOver(f"{work.call_id} was abandoned")
            running.done.set_result(self._reply(record, running.model, parsed, work.reused_tokens))
        except (GyreError, ValueError) as error:
            if not isinstance(error, NotFound | ExecutionOver):
                log.warning("%s failed: %s", work.call_id, error)
            running.done.set_exception(error)
        except BaseException as error:
            running.done.set_exception(InvalidInput(f"the call was given up: {error!r}"))
            raise
        finally:
            if entry.running.get(key) is running:
                del entry.running[key]
            entry.live.discard(running)
            running.changed.set()

    def _record(
        self,
        claims: Claims,
        role: Verdict,
        prompt: Prompt,
        running: Running,
        index: int,
        parsed: Parsed,
        is_context_bound: bool,
    ) -> CallRecorded:
        work = running.work
        assert work is not None
        if work.finish == "aborted":
            finish = "cancelled"
        elif work.finish == "length":
            finish = "context" if is_context_bound else "length"
        else:
            finish = "tool_calls" if parsed.calls else "stop"
        return CallRecorded(
            call_id=work.call_id, execution_id=claims.execution_id, group_id=claims.group_id, attempt=claims.attempt,
            call_index=index, purpose=claims.purpose, parent=prompt.parent.call_id, parent_tokens=prompt.kept,
            prompt_delta=pack(prompt.delta, "int32"), prompt_tokens=len(prompt.ids), output_ids=pack(work.ids, "int32"),
            logprobs=pack(work.logprobs, "float32"), versions=pack(work.versions, "int32"), sampling=work.sampling,
            finish_reason=finish, role=role.role, role_rule=role.rule, message_digest=prompt.digest.hex(),
            tool_payloads={call.call_id: call.arguments for call in parsed.calls}, cells=work.cells,
            delivered=running.watchers > 0 and finish != "cancelled", started_at_s=work.arrived_s,
            first_token_at_s=work.first_token_at_s, at_s=self._clock.now_s(), wait_s=work.wait_s,
        )  # fmt: skip

    def _answered(self, entry: _Open, key: tuple[bytes, str], record: CallRecorded, request: ChatRequest) -> Running:
        """A retry whose call is on record gets the recorded reply, when its execution is not suspended."""
        parsed = self.model.read(memoryview(record.output_ids).cast("i").tolist(), record.call_id, record.sampling)
        done: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        model = request.model or "policy"
        reply = self._reply(record, model, parsed, 0)
        running = Running(
            record.call_id, model, reply.created_s, done, is_recorded=True, prompt_tokens=record.prompt_tokens
        )
        if entry.session.sample_id in self._held:
            entry.running[key] = running
            entry.live.add(running)
            running.task = asyncio.create_task(self._answer_later(entry, key, running, reply))
        else:
            done.set_result(reply)
        return running

    async def _answer_later(self, entry: _Open, key: tuple[bytes, str], running: Running, reply: Reply) -> None:
        await running.going.wait()
        del entry.running[key]
        entry.live.discard(running)
        running.done.set_result(reply)
        running.changed.set()

    @staticmethod
    def _reply(record: CallRecorded, model: str, parsed: Parsed, reused_tokens: int) -> Reply:
        finish = {"context": "length", "cancelled": "stop"}.get(record.finish_reason, record.finish_reason)
        return Reply(
            record.call_id, model, int(record.started_at_s), parsed, finish, record.prompt_tokens,
            len(record.output_ids) // 4, reused_tokens,
        )  # fmt: skip

    @staticmethod
    def _hear(running: Running, ids: Sequence[int]) -> int | None:
        kept = running.reader.push(ids)
        running.changed.set()
        return kept

    def _abandon_unwatched(self, running: Running) -> None:
        if running.watchers == 0 and running.work is not None and not running.done.done():
            running.abandoning = asyncio.create_task(self._abandon(running))

    async def _abandon(self, running: Running) -> None:
        """End a call with the tokens it has; the pool does not begin one that waited."""
        abandoning = self._pool.abandon(running.work) if running.work is not None else None
        running.going.set()
        if abandoning is not None:
            await abandoning

    def _trace(self, claims: Claims, record: CallRecorded) -> None:
        versions = memoryview(record.versions).cast("i")
        emit_span(
            "chat policy", record.started_at_s, record.at_s, claims.traceparent,
            **{
                "gen_ai.operation.name": "chat", "gen_ai.request.model": "policy",
                "gen_ai.usage.input_tokens": record.prompt_tokens, "gen_ai.usage.output_tokens": len(versions),
                "gen_ai.response.finish_reasons": [record.finish_reason], "gyre.execution": record.execution_id,
                "gyre.attempt": record.attempt, "gyre.call": record.call_id, "gyre.cells": record.cells,
                "gyre.wait_s": record.wait_s, "gyre.policy_version.min": min(versions), "gyre.policy_version.max": max(versions),
            },
        )  # fmt: skip

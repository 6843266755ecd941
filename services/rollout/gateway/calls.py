"""Model calls of all executions: joined by retries, recorded before they are answered, abandoned when nobody waits.

budget.py (core)  what an execution may still do      calling.py   one call: at a cell, on record, then said
session.py (core) what a request becomes in tokens    running.py   calls under way, sessions that are open
                                                      telling.py   record, reply and spans of a call that is done
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial

from gyre.bus import Bus
from gyre.bus.server import MAX_PAYLOAD_BYTES
from gyre.clock import Clock
from gyre.config import Config
from gyre.errors import Overloaded, Unavailable
from gyre.ids import sample_id, split_sample_id
from gyre.records import CallRecorded
from services.rollout.core.budget import BudgetOver, check_room, sampling_of
from services.rollout.core.classify import Verdict
from services.rollout.core.keys import Claims
from services.rollout.core.leases import Attempts
from services.rollout.core.memory import Memory, Values
from services.rollout.core.request import ChatRequest
from services.rollout.core.session import Model, Session
from services.rollout.core.template import Encode
from services.rollout.gateway.calling import Call, Calling
from services.rollout.gateway.longtexts import LongTexts
from services.rollout.gateway.peers import Peers
from services.rollout.gateway.pool import CellPool
from services.rollout.gateway.running import ExecutionOver, Open, Running, Totals

log = logging.getLogger(__name__)

RETRY_GRACE_S = 2.0
"""A call whose harness hung up goes on for this long: clients hang up when their own time-out strikes and ask again at once, and
the retry then finds the same call instead of starting over (AReaL#1498). What is sampled by then goes on record when it is known whether
anybody takes it."""
CALLS_WAITING_MAX = 4096


class ModelCalls:
    """All sessions of unfinished executions. Memory is bounded by what is in flight: `close` frees a session."""

    def __init__(
        self, config: Config, model: Model, pool: CellPool, bus: Bus, clock: Clock, attempts: Attempts, peers: Peers | None = None
    ) -> None:  # fmt: skip
        """`peers`: the other gateways of the run; None: this is the only one."""
        self._config = config
        self.model = model
        self._pool = pool
        self._bus = bus
        self._clock = clock
        self._attempts = attempts
        self._peers = peers
        self._values = Values()
        self._long = LongTexts(model.template)
        self._open: dict[str, Open] = {}
        self._restoring: dict[str, asyncio.Task] = {}
        self._closing: set[asyncio.Task] = set()
        self._calling = Calling(model, pool, bus, clock, self._lose)
        self.idle = self._calling.idle
        self.on_budget: Callable[[Claims, str], None] = lambda claims, limit: None
        """Told when a call is refused for a limit of its execution that is used up."""
        self.on_restored: Callable[[str, CallRecorded], None] = lambda sample, record: None
        """Told of each record that a session is rebuilt from."""

    @property
    def sessions(self) -> int:
        return len(self._open)

    @property
    def recorded(self) -> int:
        return self._calling.recorded

    @property
    def tokens_sampled(self) -> int:
        return self._calling.tokens_sampled

    def restore(self, sample: str, records: Sequence[CallRecorded], newest: int | None = None) -> Session:
        """A session from its records, as they stand in the log; `newest` as in Open."""
        session = Session(sample, self._values)
        for record in records:
            session.take(record, self.model)
            self.on_restored(sample, record)
        self._open[sample] = Open(session, newest)
        return session

    async def server(self, claims: Claims) -> str:
        """Address of another gateway that serves this session; empty: it is served here, and all of it that is on record is known.

        Raises ExecutionOver, Unavailable, Conflict."""
        sample = sample_id(claims.execution_id, claims.attempt)
        if self._peers is None or sample in self._open:
            return ""
        if not self._attempts.is_current(claims.execution_id, claims.attempt):
            if not self._attempts.ended_attempt(claims.execution_id):
                raise Unavailable(f"{sample} is not known here yet; ask again")
            return ""  # refused as over
        if address := await self._peers.server(sample):
            return address
        if sample not in self._restoring:
            self._restoring[sample] = asyncio.create_task(self._restore(claims.execution_id, claims.attempt))
            self._restoring[sample].add_done_callback(lambda _: self._restoring.pop(sample, None))
        await asyncio.shield(self._restoring[sample])
        return ""

    def is_served_at(self, address: str) -> bool:
        """Whether the gateway at this address gives signs of life."""
        return self._peers is not None and self._peers.is_there(address)

    async def _restore(self, execution_id: str, attempt: int) -> None:
        facts = await self._bus.all_of(CallRecorded, execution_id)
        records = [fact for fact, _ in facts if fact.attempt == attempt]
        sample = sample_id(execution_id, attempt)
        if sample not in self._open:
            self.restore(sample, records, facts[-1][1] if facts else 0)
            log.info("%s: %d calls from the log", sample, len(records))

    def last_at_s(self, sample: str) -> float:
        """When the newest call of an open session ended; 0 where there is none."""
        return self._open[sample].session.last_at_s if sample in self._open else 0.0

    def memory(self, claims: Claims) -> Memory | None:
        """What its session remembers of the bodies it was sent; None: it is over."""
        if not self._attempts.is_current(claims.execution_id, claims.attempt):
            return None
        return self._entry(sample_id(claims.execution_id, claims.attempt)).session.memory

    async def soon(self, claims: Claims, request: ChatRequest, role: Callable[[], Verdict]) -> Running:
        """As `begin`; what is long and new of the request is read beside the event loop first. Raises also BadRequest for what no context holds."""
        make = partial(self.begin, claims, request, role)
        return await self._long.whenever(claims, self._current(claims), make, self._tokens_max(claims))

    def begin(
        self, claims: Claims, request: ChatRequest, role: Callable[[], Verdict], encode: Encode | None = None
    ) -> Running:
        """The call of this request: a new one, or the one a retry belongs to. Answers at once; `done` has the reply. Who began it waits for it
        until `hang_up`. A new one's `role` is asked while it is sampled. `encode`: as in Session.prompt.

        Raises ExecutionOver, BudgetOver, Overloaded, InvalidInput (BadRequest with its place)."""
        entry = self._current(claims)
        prompt = entry.session.prompt(request, self.model, encode)
        key = (prompt.digest, request.variant())
        running = entry.running.get(key)
        if running is not None and not (running.work is not None and running.work.is_abandoned):
            return running.watch()
        context_max, prefix = self._config.rollout.context_max, self.model.prefix(request)
        sampling, most, is_context_bound = sampling_of(
            claims, request, prompt, entry.session, context_max, MAX_PAYLOAD_BYTES, prefix
        )
        if (record := entry.session.recorded(prompt.digest, sampling, most)) is not None:
            return self._calling.answered(entry, key, record, request).watch()
        self._check_room(claims, entry)
        return self._calling.start(Call(claims, request, role, entry, key, prompt, sampling, is_context_bound)).watch()

    async def count_tokens(self, claims: Claims, request: ChatRequest) -> int:
        """Of the prompt that a call of this request would have now. Raises InvalidInput when the template refuses it;
        BadRequest for what no context holds, which is not read to be counted; ExecutionOver, Overloaded."""
        entry = self._current(claims)
        make = partial(entry.session.prompt, request, self.model)
        return len((await self._long.whenever(claims, entry, make, self._tokens_max(claims))).ids)

    def _tokens_max(self, claims: Claims) -> int:
        return min(claims.context_tokens_max, self._config.rollout.context_max)

    def hang_up(self, running: Running) -> None:
        """Who began it waits no more; when nobody else does the call ends soon, unless a retry takes it over."""
        running.leave(RETRY_GRACE_S, self._abandon_unwatched)

    def hold(self, sample: str) -> None:
        """The execution is suspended: what begins from here on waits, what is being sampled is recorded and answered later; its place at a
        cell is for others. Not an attempt that is ending: its ending waits for its calls."""
        if (entry := self._open.get(sample)) is None or not entry.closing:
            self._calling.held.add(sample)
        if entry is None or entry.closing:
            return
        for running in entry.live:
            running.going.clear()
        if not entry.live:
            self._pool.forget(sample)

    def go_on(self, sample: str) -> None:
        """The execution is resumed."""
        self._calling.held.discard(sample)
        if (entry := self._open.get(sample)) is not None:
            for running in entry.live:
                running.going.set()

    async def stop(self, sample: str) -> Totals:
        """The attempt ends: abort and record its running calls. Its session stays and refuses calls until `forget`, for a call that opened another
        one before the ending is on record would be on record after it, under a name that is taken."""
        self._calling.held.discard(sample)
        self.idle.ends(sample, self._clock.now_s())
        execution, attempt = split_sample_id(sample)
        if sample not in self._open and self._peers is not None and attempt:
            await self._restore(execution, attempt)  # other gateways may have served it
        entry = self._entry(sample)
        entry.closing = True
        live = list(entry.live)
        await asyncio.gather(*(self._calling.abandon(running) for running in live))
        if tasks := [running.task for running in live if running.task is not None]:
            await asyncio.wait(tasks)
        return Totals.of(entry.session)

    async def forget(self, sample: str) -> None:
        """Its key opens nothing any more; free its session."""
        self._open.pop(sample, None)
        self._pool.forget(sample)
        if self._peers is not None:
            await self._peers.closed(sample)

    async def close(self, sample: str) -> Totals:
        """`stop` and `forget`, of an attempt whose key is refused already."""
        totals = await self.stop(sample)
        await self.forget(sample)
        return totals

    def over(self, sample: str) -> None:
        """Its ending is on record, said by whichever gateway: whatever still runs here is given up."""
        if sample in self._open:
            self._closing.add(task := asyncio.create_task(self.close(sample)))
            task.add_done_callback(self._closing.discard)

    def _current(self, claims: Claims) -> Open:
        """Raises ExecutionOver."""
        sample = sample_id(claims.execution_id, claims.attempt)
        if not self._attempts.is_current(claims.execution_id, claims.attempt):
            raise ExecutionOver(f"{sample} is over or a newer attempt runs; this key opens nothing any more")
        entry = self._entry(sample)
        if entry.closing:
            raise ExecutionOver(f"{sample} is ending")
        return entry

    def _entry(self, sample: str) -> Open:
        """Its session, which begins here where there is none yet."""
        if (entry := self._open.get(sample)) is None:
            entry = self._open[sample] = Open(Session(sample, self._values), 0 if self._peers is not None else None)
        return entry

    def _check_room(self, claims: Claims, entry: Open) -> None:
        unrecorded = sum(not running.is_recorded for running in entry.running.values())
        try:
            check_room(claims, entry.session, unrecorded, len(entry.live) + entry.preparing)
        except BudgetOver as over:
            self.on_budget(claims, over.limit)
            raise
        if self._pool.waiting >= CALLS_WAITING_MAX:
            raise Overloaded(f"{self._pool.waiting} calls wait for a cell", retry_after_s=2.0)

    def _lose(self, sample: str) -> None:
        """Another gateway writes its records: what is known of it here is old."""
        log.warning("%s is written by another gateway; it is let go here", sample)
        self._open.pop(sample, None)
        self._pool.forget(sample)
        if self._peers is not None:
            self._peers.lost(sample)

    def _abandon_unwatched(self, running: Running) -> None:
        if not running.done.done():
            running.abandoning = asyncio.create_task(self._calling.abandon(running))

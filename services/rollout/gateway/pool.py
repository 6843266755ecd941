"""Runs one call on cells until it is done: waiting for a cell, going on elsewhere when a cell leaves or dies (A6)."""

import asyncio
import contextlib
import heapq
import itertools
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import grpc
import grpc.aio

from gyre.api.rollout.v1 import cells_pb2 as pb
from gyre.api.rollout.v1 import cells_pb2_grpc as rpc
from gyre.clock import Clock
from gyre.errors import InvalidInput, Unavailable
from gyre.records import Sampling
from gyre.rpc import open_channel
from services.rollout.core.routing import Routing
from services.rollout.core.trie import Ids

log = logging.getLogger(__name__)

PROBE_S = 0.3
"""How often a cell that did not answer is asked whether it serves again."""
PROBE_TIMEOUT_S = 5.0
FAILURES_MAX = 3
"""Errors of engines (not of connections) before a call is given up."""
ABORT_TIMEOUT_S = 5.0
KNOWN_MAX, KNOWN_TOKENS_MIN = 32, 1024
"""Contexts of one session whose names at their cells are remembered, the latest; the prompt of fewer tokens is sent whole."""
PLACE_KEPT_S = 10.0
"""A session that others wait for gives up its place between two calls, once it has had it for this long: each change of places costs the
computation of a whole context."""


class Known:
    """What cells know of one session's contexts, as they have said since it was opened here. Opened anew it begins with nothing: a call of the same
    id may be another one then."""

    def __init__(self) -> None:
        self._names: dict[str, tuple[str, str]] = {}
        """Call → its cell, and the name of its context there; the latest at the end."""

    def name_at(self, cell: str, call_id: str) -> str:
        """Empty: it is not known there."""
        at, name = self._names.get(call_id, ("", ""))
        return name if at == cell else ""

    def take(self, call_id: str, cell: str, name: str) -> None:
        self._names[call_id] = cell, name
        if len(self._names) > KNOWN_MAX:
            del self._names[next(iter(self._names))]


@dataclass(eq=False)
class Work:
    """One call on its way through cells; what was sampled so far lies here."""

    call_id: str
    session: str
    prompt_ids: Ids
    parent: str
    """The call whose context, as it is on record, has …"""
    kept: int
    """… so many of the prompt's first tokens."""
    contexts: Known
    """Of its session."""
    sampling: Sampling
    stop_ids: Sequence[int]
    chunk_tokens: int
    arrived_s: float
    on_tokens: Callable[[Sequence[int]], int | None] | None = None
    """Told of new tokens; answers how many of all are the output when it must end there."""
    traceparent: str = ""
    """The execution's span; the cell's own span becomes its child."""
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)
    cells: list[str] = field(default_factory=list)
    finish: str = ""
    """`stop`, `length` or `aborted` at the end."""
    reused_tokens: int = 0
    known: str = ""
    """Name of its context at the cell where it ended."""
    wait_s: float = 0.0
    first_token_at_s: float = 0.0
    at: str = ""
    """Cell that runs it now, …"""
    asked: grpc.aio.UnaryStreamCall | grpc.aio.UnaryUnaryCall | None = None
    """… and the call there."""
    is_abandoned: bool = False
    ticket: asyncio.Future | None = None


class CellPool:
    """The cells of a run as the gateway sees them."""

    def __init__(
        self, routing: Routing, addresses: dict[str, str], key: str, clock: Clock, place_kept_s: float = PLACE_KEPT_S
    ) -> None:
        self.routing = routing
        self._clock = clock
        self._place_kept_s = place_kept_s
        self._channels = {name: open_channel(address, key) for name, address in addresses.items()}
        self.stubs = {name: rpc.CellServiceStub(channel) for name, channel in self._channels.items()}
        self.running: dict[str, set[Work]] = {name: set() for name in addresses}
        self.moved = 0
        """Calls that went on at another cell."""
        self._line: list[tuple[float, int, asyncio.Future, str]] = []
        """Calls that wait for a cell, longest waiting first (ThunderAgent#46), with their sessions."""
        self._tickets = itertools.count()
        self._placed_s: dict[str, float] = {}
        """Session → since when it has its place; of sessions that once waited."""
        self._probes: dict[str, asyncio.Task] = {}

    @property
    def waiting(self) -> int:
        return sum(not ticket.done() for _, _, ticket, _ in self._line)

    async def close(self) -> None:
        for probe in self._probes.values():
            probe.cancel()
        for channel in self._channels.values():
            await channel.close(None)

    def set_serving(self, cell: str, serving: bool) -> None:
        """Routes change at once; who waits is admitted in order of waiting time."""
        self.routing.set_serving(cell, serving)
        self._admit_waiting()

    def forget(self, session: str) -> None:
        """The session is over; its place is the next one's."""
        self.routing.forget(session)
        self._placed_s.pop(session, None)
        self._admit_waiting()

    async def generate(self, work: Work) -> None:
        """Returns when the call has ended, abandoned ones with finish `aborted`.

        Raises InvalidInput when a cell refuses the request, Unavailable when engines fail again and again."""
        failures = 0
        while True:
            cell = await self._place(work)
            if cell is None:
                work.finish = "aborted"
                return
            try:
                finish = await self._at(cell, work)
            except grpc.aio.AioRpcError as error:
                failures += self._judge(cell, error, failures)
                finish = "failed"
            if finish in ("stop", "length") or work.is_abandoned:
                work.finish = finish if finish in ("stop", "length") else "aborted"
                self._take_turns(work.session)
                return
            self.moved += 1
            log.info("%s goes on after %d tokens at %s (%s)", work.call_id, len(work.ids), cell, finish)

    async def abandon(self, work: Work) -> None:
        """End a call at its cell; `generate` then returns with the tokens it has."""
        work.is_abandoned = True
        if work.ticket is not None and not work.ticket.done():
            work.ticket.set_result(None)
        if not work.at or work.asked is None:
            return
        # A cell that takes the word and never ends the stream must not hold up the execution's ending.
        asyncio.get_running_loop().call_later(ABORT_TIMEOUT_S, work.asked.cancel)
        try:
            await self.stubs[work.at].Abort(pb.AbortRequest(call_id=work.call_id), timeout=ABORT_TIMEOUT_S)
        except grpc.aio.AioRpcError as error:
            log.info("%s: abort at %s: %s", work.call_id, work.at, error.details())
            work.asked.cancel()

    def lose(self, cell: str) -> None:
        """It does not answer, though its connection may be there (a process that stands still, a machine that is gone): its calls go on elsewhere
        with the tokens they have, and none goes there before it says that it serves."""
        self._suspect(cell)
        for work in self.running[cell]:
            work.asked.cancel()

    async def _place(self, work: Work) -> str | None:
        """The cell to run at; None: abandoned before there was one. Nobody overtakes the line but who has a place already."""
        from_s = self._clock.monotonic_s()
        try:
            while not work.is_abandoned:
                if not self._line or self.routing.is_placed(work.session):
                    if (cell := self.routing.choose(work.session)) is not None:
                        return cell
                work.ticket = asyncio.get_running_loop().create_future()
                heapq.heappush(self._line, (work.arrived_s, next(self._tickets), work.ticket, work.session))
                self._admit_waiting()
                if (cell := await work.ticket) is not None and self.routing.cells[cell].serving:
                    return cell
            return None
        finally:
            work.wait_s += self._clock.monotonic_s() - from_s

    def _admit_waiting(self) -> None:
        """Those for whom there is room now, in the order of the line, their places taken at once; a session's second call takes no second place."""
        admitted = set()
        while self._line:
            _, _, ticket, session = self._line[0]
            if not ticket.done():
                if (cell := self.routing.choose(session)) is None:
                    break
                self._placed_s.setdefault(session, self._clock.monotonic_s())
                admitted.add(session)
                ticket.set_result(cell)
            heapq.heappop(self._line)
        for _, _, ticket, session in self._line if admitted else ():
            if session in admitted and not ticket.done():
                ticket.set_result(self.routing.choose(session))

    def _take_turns(self, session: str) -> None:
        """One of its calls has ended: where others wait and it has had its place for its time, theirs is the next turn (ThunderAgent#46)."""
        if not self._line or not self.routing.is_any_away:
            return
        now_s = self._clock.monotonic_s()
        has_more = any(work.session == session for works in self.running.values() for work in works)
        if not has_more and now_s - self._placed_s.setdefault(session, now_s) >= self._place_kept_s:
            del self._placed_s[session]
            self.routing.give_up_place(session)
            self._admit_waiting()

    async def _at(self, cell: str, work: Work) -> str:
        """As `_ask`, of its prompt only what the cell does not know, where it knows it."""
        name = work.contexts.name_at(cell, work.parent) if work.kept >= KNOWN_TOKENS_MIN else ""
        try:
            finish = await self._ask(cell, work, name)
        except grpc.aio.AioRpcError as error:
            if not name or error.code() is not grpc.StatusCode.NOT_FOUND:
                raise
            finish = "aborted" if work.is_abandoned else await self._ask(cell, work)
        if finish in ("stop", "length") and work.known:
            work.contexts.take(work.call_id, cell, work.known)
        return finish

    async def _ask(self, cell: str, work: Work, known: str = "") -> str:
        """Run at one cell, where the prompt's known part has the name `known`; the reason its stream ended with. Raises AioRpcError."""
        if not work.cells or work.cells[-1] != cell:
            work.cells.append(cell)
        metadata = (("traceparent", work.traceparent),) if work.traceparent else None
        asked, stub, is_watched = _fields(work, known), self.stubs[cell], work.on_tokens is not None
        if is_watched:
            work.asked = stub.Generate(pb.GenerateRequest(**asked), metadata=metadata)
        else:
            work.asked = stub.GenerateWhole(pb.GenerateWholeRequest(call=asked), metadata=metadata)
        work.at = cell
        self.running[cell].add(work)
        try:
            if not is_watched:
                self._take(output := (await work.asked).output, work)
                return output.finish_reason or "broken"
            # not `async for`: its generator, left before its end, and the call would hold each other, and the prompt, until they are looked for
            while (chunk := await work.asked.read()) is not grpc.aio.EOF:
                if self._take(chunk, work):
                    work.asked.cancel()
                    return "stop"
                if chunk.finish_reason:
                    return chunk.finish_reason
            return "broken"
        except asyncio.CancelledError:
            if work.asked.cancelled() and not asyncio.current_task().cancelling():
                return "aborted" if work.is_abandoned else "lost"
            work.asked.cancel()
            raise
        finally:
            work.at = ""
            self.running[cell].discard(work)

    def _take(self, chunk: pb.GenerateResponse, work: Work) -> bool:
        """Whether the output ends here, whatever the engine still has to say."""
        kept = None
        if chunk.ids:
            work.first_token_at_s = work.first_token_at_s or self._clock.now_s()
            work.ids.extend(chunk.ids)
            work.logprobs.extend(chunk.logprobs)
            work.versions.extend(chunk.versions)
            if work.on_tokens is not None:
                kept = work.on_tokens(chunk.ids)
        work.reused_tokens = max(work.reused_tokens, chunk.reused_tokens)
        work.known = chunk.known
        if kept is not None:
            del work.ids[kept:], work.logprobs[kept:], work.versions[kept:]
        return kept is not None

    def _judge(self, cell: str, error: grpc.aio.AioRpcError, failures: int) -> int:
        """1 when the engine itself failed, 0 when the cell does not serve now. Raises what cannot be helped."""
        code = error.code()
        if code in (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.OUT_OF_RANGE):
            raise InvalidInput(f"{cell} refused the call: {error.details()}")
        if code in (grpc.StatusCode.INTERNAL, grpc.StatusCode.RESOURCE_EXHAUSTED):
            if failures + 1 >= FAILURES_MAX:
                raise Unavailable(f"{cell} failed {FAILURES_MAX} times: {error.details()}")
            return 1
        log.info("%s does not serve (%s: %s)", cell, code.name, error.details())
        self._suspect(cell)
        return 0

    def _suspect(self, cell: str) -> None:
        self.routing.cells[cell].suspected = True
        if cell not in self._probes:
            self._probes[cell] = asyncio.create_task(self._probe(cell))

    async def _probe(self, cell: str) -> None:
        """Until the cell answers that it serves, or is not to serve any more."""
        try:
            while self.routing.cells[cell].suspected:
                await asyncio.sleep(PROBE_S)
                with contextlib.suppress(grpc.aio.AioRpcError):
                    status = await self.stubs[cell].GetStatus(pb.GetStatusRequest(), timeout=PROBE_TIMEOUT_S)
                    if status.serving:
                        self.routing.cells[cell].suspected = False
        finally:
            self._probes.pop(cell, None)
        self._admit_waiting()


def _fields(work: Work, known: str) -> dict[str, Any]:
    """Of its GenerateRequest."""
    sampling, kept = work.sampling, work.kept if known else 0
    return {
        "call_id": work.call_id, "session": work.session, "known": known, "known_tokens": kept,
        "prompt": work.prompt_ids[kept:].astype("<i4", copy=False).tobytes(), "resume_ids": work.ids,
        "max_tokens": sampling.max_tokens, "temperature": sampling.temperature, "top_p": sampling.top_p,
        "seed": sampling.seed, "stop_ids": work.stop_ids, "chunk_tokens": work.chunk_tokens,
    }  # fmt: skip

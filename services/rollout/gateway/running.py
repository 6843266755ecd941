"""Calls under way and the sessions they belong to, as ModelCalls keeps them."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from gyre.bus import Bus
from gyre.errors import GyreError
from gyre.records import CallRecorded
from services.rollout.core.reply import Reply
from services.rollout.core.session import Session
from services.rollout.core.streaming import OutputReader
from services.rollout.gateway.pool import Known, Work


class ExecutionOver(GyreError):
    """The key's attempt has ended or is fenced."""

    code = "execution_over"


class Draft:
    """A plain reply's bytes, put together before they may leave."""

    def __init__(self, make: Callable[[Reply], bytes]) -> None:
        self._make = make
        self._made: tuple[Reply, bytes] | None = None

    def of(self, reply: Reply) -> bytes:
        """Of this very reply; made once."""
        if self._made is None or self._made[0] is not reply:
            self._made = reply, self._make(reply)
        return self._made[1]


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
    """Requests that wait for it."""
    leaving: asyncio.TimerHandle | None = None
    """Gives it up when nobody has come back until then."""
    settled: asyncio.Event = field(default_factory=asyncio.Event)
    """Whether its reply will be taken is known: somebody waits for it, or nobody will any more."""
    is_sampled: bool = False
    """All its tokens are there: nothing is left to abort."""
    prompt_tokens: int = 0
    reader: OutputReader | None = None
    """What is certain of a call under way; None where nobody reads it before its end."""
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    """Its reader knows more, or `done` is."""
    over: asyncio.Event = field(default_factory=asyncio.Event)
    """`done` is, by `tell`: a turn of the loop sooner than by its own callbacks."""
    abandoning: asyncio.Task | None = None
    is_recorded: bool = False
    """Sampled and on record; only its answer is held back."""
    drafts: list[Draft] = field(default_factory=list)
    """Of those who wait for a plain reply, each in its API's words."""
    going: asyncio.Event = field(default_factory=asyncio.Event)
    """Set unless its execution is suspended: the call does not begin, or is not answered, before."""

    async def reply(self) -> Reply:
        """When it is known, whoever else waits. Raises what became of the call; to be cancelled here ends nothing."""
        if not self.done.done():
            await self.over.wait()
        return self.done.result()

    def tell(self) -> None:
        """`done` is: wake all who wait."""
        self.over.set()
        self.changed.set()

    def watch(self) -> "Running":
        """One more request waits for it."""
        self.watchers += 1
        self.settled.set()
        if self.leaving is not None:
            self.leaving.cancel()
        return self

    def draft(self, reply: Reply) -> None:
        """Make the bytes ready that those who wait will be told. What one cannot be told he is told when he asks."""
        for draft in self.drafts:
            with contextlib.suppress(Exception):
                draft.of(reply)

    def leave(self, grace_s: float, give_up: Callable[["Running"], None]) -> None:
        """A request waits no more; when it was the last one, `give_up` is called after `grace_s` unless one has come back."""
        self.watchers -= 1
        if self.watchers or self.work is None or self.work.is_abandoned or self.done.done():
            return
        self.settled.clear()
        self.leaving = asyncio.get_running_loop().call_later(grace_s, give_up, self)


@dataclass(eq=False)
class Open:
    """One session that is served here."""

    session: Session
    newest: int | None = None
    """Sequence of the newest record of its execution, after which alone the next one may stand; None: nobody else writes there."""
    running: dict[tuple[bytes, str], Running] = field(default_factory=dict)
    """What a retry may join."""
    live: set[Running] = field(default_factory=set)
    """All calls that are not on record yet, abandoned ones too."""
    closing: bool = False
    contexts: Known = field(default_factory=Known)
    preparing: int = 0
    """Texts of its requests that are read beside the event loop (longtexts.py), or wait for it."""
    reading: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while one of them is read."""
    writing: asyncio.Lock = field(default_factory=asyncio.Lock)

    def prepared(self) -> None:
        """The text that was being read is."""
        self.preparing -= 1
        self.reading.release()

    async def put(self, bus: Bus, record: CallRecorded, traceparent: str) -> Awaitable[object]:
        """On its way to its stream; what is answered must be awaited: then it is on record. That raises Conflict when another gateway has written
        since."""
        if self.newest is None:
            return await bus.give(record, traceparent=traceparent)
        storing = asyncio.create_task(self._put_next(bus, record, traceparent))
        await asyncio.sleep(0)  # it leaves, unless another one is being stored
        return storing

    async def _put_next(self, bus: Bus, record: CallRecorded, traceparent: str) -> None:
        async with self.writing:
            self.newest = await bus.publish(record, traceparent=traceparent, after=self.newest)


@dataclass(frozen=True, slots=True)
class Totals:
    """The gateway's books of one attempt (C6)."""

    turns: int = 0
    calls: int = 0
    tokens_sampled: int = 0
    model_wait_s: float = 0.0

    @classmethod
    def of(cls, session: Session) -> "Totals":
        return cls(session.turns, session.calls, session.tokens_sampled, session.model_wait_s)

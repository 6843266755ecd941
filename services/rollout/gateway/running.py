"""Calls under way and the sessions they belong to, as ModelCalls keeps them."""

import asyncio
from dataclasses import dataclass, field

from gyre.bus import Bus
from gyre.errors import GyreError
from gyre.records import CallRecorded
from services.rollout.core.reply import Reply
from services.rollout.core.session import Session
from services.rollout.core.streaming import OutputReader
from services.rollout.gateway.pool import Work


class ExecutionOver(GyreError):
    """The key's attempt has ended or is fenced."""

    code = "execution_over"


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
    writing: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def put(self, bus: Bus, record: CallRecorded, traceparent: str) -> None:
        """On record. Raises Conflict when another gateway has written since."""
        if self.newest is None:
            await bus.publish(record, traceparent=traceparent)
            return
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

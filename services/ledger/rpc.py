"""LedgerService: each call runs one query in a thread, on a snapshot of its own. What is larger than a message is refused, with where to have it."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import grpc.aio
import msgspec
import sqlalchemy as sa

from gyre.api.ledger.v1 import ledger_pb2, ledger_pb2_grpc
from gyre.config import Config
from gyre.errors import GyreError, Overloaded, Unavailable
from gyre.rpc import MESSAGE_BYTES_MAX, abort_with
from services.ledger import queries
from services.ledger.core.tables import INTAKE
from services.ledger.intake import Progress
from services.ledger.queries.asked import Asked, ask
from services.ledger.queries.doctor import Room
from services.ledger.storage import Database

FULL_NAME = "gyre.api.ledger.v1.LedgerService"
ANSWER_BYTES_MAX = MESSAGE_BYTES_MAX - 1024
"""Of an answer's text: what is around it in the message takes a few bytes."""


class LedgerServicer(ledger_pb2_grpc.LedgerServiceServicer):
    """Answers from the database; `progress` (absent offline) tells how far the books are behind the bus."""

    def __init__(self, database: Database, run: str, config: Config, progress: Callable[[], Awaitable[Progress]] | None = None,
                 room: Callable[[], Room] = Room) -> None:  # fmt: skip
        self._database = database
        self._run = run
        self._config = config
        self._progress = progress
        self._room = room

    async def Ask(self, request, context: grpc.aio.ServicerContext):
        asked = Asked(self._run, self._config, tuple(request.names), request.after, request.limit, self._room)
        behind = await self._behind() if self._progress and request.question == "audit" else {}
        return ledger_pb2.AskResponse(json=await self._text(context, ask, request.question, asked, more=behind))

    async def _behind(self) -> dict[str, Any]:
        """What an audit of books that are being kept has not seen: `intake`: {waiting, set_aside}, null where the bus does not say."""
        try:
            _, waiting, set_aside = await self._progress()
        except GyreError:
            return {"intake": None}
        return {"intake": {"waiting": waiting, "set_aside": set_aside}}

    async def Audit(self, request, context: grpc.aio.ServicerContext):
        criteria = await self._ask(context, queries.audit, self._run, self._config)
        return ledger_pb2.AuditResponse(
            passed=all(criterion.passed for criterion in criteria),
            criteria=[
                ledger_pb2.Criterion(name=one.name, passed=one.passed, figure=one.figure, query=one.query)
                for one in criteria
            ],
        )

    async def Explain(self, request, context: grpc.aio.ServicerContext):
        return ledger_pb2.ExplainResponse(json=await self._text(context, queries.explain, self._run, request.sample_id))

    async def GetDrops(self, request, context: grpc.aio.ServicerContext):
        return ledger_pb2.GetDropsResponse(json=await self._text(context, queries.drops, self._run, self._config))

    async def GetBooks(self, request, context: grpc.aio.ServicerContext):
        return ledger_pb2.GetBooksResponse(json=await self._text(context, queries.books, self._run, self._config))

    async def GetBill(self, request, context: grpc.aio.ServicerContext):
        return ledger_pb2.GetBillResponse(
            json=await self._text(context, queries.bill, self._run, self._config, tuple(request.by))
        )

    async def GetQueues(self, request, context: grpc.aio.ServicerContext):
        return ledger_pb2.GetQueuesResponse(json=await self._text(context, queries.queues, self._run))

    async def GetTrace(self, request, context: grpc.aio.ServicerContext):
        return ledger_pb2.GetTraceResponse(json=await self._text(context, queries.trace, self._run, request.id))

    async def GetIntake(self, request, context: grpc.aio.ServicerContext):
        stored = await self._ask(context, intake, self._run)
        try:
            found = await self._progress() if self._progress else Progress(stored["stream_sequence"], 0, 0)
        except GyreError as error:
            await abort_with(context, error)
        return ledger_pb2.GetIntakeResponse(
            stream_sequence=found.sequence, facts=stored["facts"], spans=stored["spans"], poison=found.set_aside
        )

    async def _text(self, context: grpc.aio.ServicerContext, question: Callable[..., dict[str, Any]], *arguments: Any,
                    more: dict[str, Any] | None = None) -> str:  # fmt: skip
        """The answer and `more` as JSON, where it fits into a message; written beside the event loop, as the question is asked."""

        def written(connection: sa.Connection) -> str:
            text = to_text({**question(connection, *arguments), **(more or {})})
            if (size := len(text.encode())) > ANSWER_BYTES_MAX:
                raise Overloaded(
                    f"the answer has {size} bytes and a message at most {ANSWER_BYTES_MAX}; "
                    "a `gyre` command, or `python -m services.ledger --run DIR --print=QUESTION`, reads it from the database; "
                    "Ask has its long list in pages: `limit`, `after`"
                )
            return text

        return await self._ask(context, written)

    async def _ask(self, context: grpc.aio.ServicerContext, question: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return await asyncio.to_thread(self._read, question, arguments)
        except GyreError as error:
            await abort_with(context, error)
        except sa.exc.DBAPIError as error:
            await abort_with(context, Unavailable(f"the ledger database does not answer: {error.orig}"))

    def _read(self, question: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        with self._database.read() as connection:
            return question(connection, *arguments)


def intake(connection: sa.Connection, run: str) -> dict[str, int]:
    """`stream_sequence` (newest fact stored), `facts`, `spans`."""
    row = connection.execute(sa.select(INTAKE).where(INTAKE.c.run == run)).mappings().first()
    return {name: row[name] if row else 0 for name in ("stream_sequence", "facts", "spans")}


def to_text(page: Any) -> str:
    """JSON; NaN becomes null."""
    return msgspec.json.encode(page).decode()

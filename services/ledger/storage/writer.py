"""The one thread that writes: whatever waits when it looks becomes one transaction.

write_facts / write_spans ─▶ queue ─▶ [thread] BEGIN, rows, COMMIT ─▶ the caller's future

A database that is locked, full or away is tried again with growing pauses for as long as it takes; nobody's future resolves meanwhile, so nothing
is acknowledged. A fact that the database can never hold (a value out of range) is named in `Stored.refused` and keeps nothing else back.
"""

import asyncio
import logging
import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from gyre.bus.subjects import natural_key
from gyre.records import Fact
from services.ledger.core.costs import added_up
from services.ledger.core.rows import rows_of
from services.ledger.core.tables import ADDED, FACTS, INTAKE, MERGED, METADATA
from services.ledger.storage.database import Database
from services.ledger.storage.settling import TELLING, settle, unsettle

log = logging.getLogger(__name__)

TRANSACTION_JOBS_MAX = 64
"""Jobs of one transaction: bounds its length when the database was away and much has piled up."""
QUEUE_JOBS_MAX = 256
"""Jobs that may wait. Each caller waits for its own, so this is only reached by very many OTLP clients."""
RETRY_FIRST_S, RETRY_MAX_S = 0.1, 5.0
"""Pauses between tries while the database does not take the transaction."""

_TROUBLE = (sa.exc.DBAPIError, sa.exc.TimeoutError)
"""The database's fault: tried again."""
_REFUSAL = (sa.exc.DataError, sa.exc.IntegrityError, sa.exc.NotSupportedError)
"""Of these, the record's own fault: tried apart, then set aside."""


@dataclass
class Stored:
    """What became of one call to write."""

    new: int = 0
    """How many were not known before."""
    fresh: list[Fact] = field(default_factory=list)
    """The facts among them, in the order given."""
    refused: list[tuple[int, str]] = field(default_factory=list)
    """Index and reason of those that the database can never hold."""


@dataclass
class _Job:
    facts: Sequence[tuple[Fact, int]]
    spans: Sequence[dict[str, Any]]
    done: "Future[Stored]"


class Writer:
    """Owns the writing connection. `start`, then any number of concurrent writes, then `close`."""

    def __init__(self, database: Database, run: str, on_trouble: Callable[[str], None] = lambda message: None) -> None:
        """`on_trouble` is called from the writer's thread, once each time the database stops taking transactions."""
        self._database = database
        self._run = run
        self._on_trouble = on_trouble
        self._jobs: queue.Queue[_Job | None] = queue.Queue(QUEUE_JOBS_MAX)
        self._closing = threading.Event()
        self._statements = _Statements(sqlite.insert if database.is_sqlite else postgresql.insert)
        self._thread = threading.Thread(target=self._work, name="ledger-writer", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Finish what is queued; a transaction that cannot be stored is given up, and its facts come again from the bus."""
        self._closing.set()
        self._jobs.put(None)
        self._thread.join()

    async def write_facts(self, facts: Sequence[tuple[Fact, int]]) -> Stored:
        """Facts with their stream sequence; returns when they are durable."""
        return await self._submit(_Job(facts, (), Future()))

    async def write_spans(self, spans: Sequence[dict[str, Any]]) -> Stored:
        """Rows of the table `spans`; returns when they are durable. Raises queue.Full when too much is waiting."""
        return await self._submit(_Job((), spans, Future()))

    async def _submit(self, job: _Job) -> Stored:
        self._jobs.put_nowait(job)
        return await asyncio.wrap_future(job.done)

    def _work(self) -> None:
        while (first := self._jobs.get()) is not None:
            jobs = [first]
            while len(jobs) < TRANSACTION_JOBS_MAX and not self._jobs.empty():
                if (job := self._jobs.get()) is None:
                    self._jobs.put(None)
                    break
                jobs.append(job)
            # From here on a caller that gives up can no longer cancel; one that has given up already is left out.
            self._store([job for job in jobs if job.done.set_running_or_notify_cancel()])

    def _store(self, jobs: list[_Job]) -> None:
        """One transaction, however long it takes to get it in; jobs alone when one of them spoils it for the others."""
        pause_s = 0.0
        while True:
            try:
                with self._database.writing.begin() as connection:
                    results = [self._apply(connection, job) for job in jobs]
                break
            except Exception as error:
                if isinstance(error, _TROUBLE) and not isinstance(error, _REFUSAL):
                    cause = getattr(error, "orig", None) or error
                    if not pause_s:
                        self._on_trouble(f"the ledger database does not take writes: {cause}")
                    pause_s = min(max(2 * pause_s, RETRY_FIRST_S), RETRY_MAX_S)
                    log.warning("ledger database: %s; trying again in %g s", cause, pause_s)
                    if self._closing.wait(pause_s):
                        return _fail(jobs, error)
                    continue
                if len(jobs) == 1 and len(jobs[0].facts) <= 1:
                    log.exception("a record could not be stored")
                    results = [Stored(refused=[(0, str(error))])]
                    break
                return self._store_apart(jobs)
        for job, result in zip(jobs, results, strict=True):
            job.done.set_result(result)

    def _store_apart(self, jobs: list[_Job]) -> None:
        """Each job, each fact, in a transaction of its own."""
        for job in jobs:
            whole = Stored()
            parts = [_Job([fact], (), Future()) for fact in job.facts] if job.facts else [_Job((), job.spans, Future())]
            for index, part in enumerate(parts):
                self._store([part])
                if (error := part.done.exception()) is not None:
                    _fail([job], error)
                    break
                whole.new += part.done.result().new
                whole.fresh += part.done.result().fresh
                whole.refused += [(index, reason) for _, reason in part.done.result().refused]
            else:
                job.done.set_result(whole)

    def _apply(self, connection: sa.Connection, job: _Job) -> Stored:
        fresh = self._unknown(connection, job.facts)
        grouped: dict[tuple[str, tuple[str, ...]], list[dict[str, Any]]] = {}
        for key, (fact, sequence) in fresh.items():
            for table, row in (("facts", {"key": key, "sequence": sequence}), *rows_of(fact)):
                grouped.setdefault((table, tuple(row)), []).append({"run": self._run, **row})
        for (table, columns), rows in grouped.items():
            if table in ADDED:
                rows = added_up(rows, [column.name for column in METADATA.tables[table].primary_key])
            connection.execute(self._statements.insert(table, columns), rows)
        spans = self._spans(connection, job.spans)
        newest = max((sequence for _, sequence in job.facts), default=0)
        told = {row["group_id"] for (table, _), rows in grouped.items() if table in TELLING for row in rows}
        unsettle(connection, self._statements.of_dialect, self._run, told, newest)
        if fresh or spans:
            settle(connection, self._run)
            self._count(connection, newest, len(fresh), spans)
        return Stored(new=len(fresh) + spans, fresh=[fact for fact, _ in fresh.values()])

    def _unknown(self, connection: sa.Connection, facts: Sequence[tuple[Fact, int]]) -> dict[str, tuple[Fact, int]]:
        """Natural key → fact, for the first of each key that is not stored yet."""
        first: dict[str, tuple[Fact, int]] = {}
        for fact, sequence in facts:
            first.setdefault(natural_key(fact), (fact, sequence))
        if first:
            query = sa.select(FACTS.c.key).where(FACTS.c.run == self._run, FACTS.c.key.in_(list(first)))
            for key in connection.scalars(query):
                del first[key]
        return first

    def _spans(self, connection: sa.Connection, spans: Sequence[dict[str, Any]]) -> int:
        if not spans:
            return 0
        rows = [{**span, "run": span["run"] or self._run} for span in spans]
        before = self._count_spans(connection, rows)
        connection.execute(self._statements.insert("spans", tuple(rows[0])), rows)
        return self._count_spans(connection, rows) - before

    def _count_spans(self, connection: sa.Connection, rows: list[dict[str, Any]]) -> int:
        """How many of these are stored. Driver row counts of a multi-row insert cannot be relied on."""
        spans = METADATA.tables["spans"].c
        ids = [row["span_id"] for row in rows]
        query = sa.select(sa.func.count()).where(
            spans.run.in_({row["run"] for row in rows}), spans.trace_id.in_({row["trace_id"] for row in rows}),
            spans.span_id.in_(ids),
        )  # fmt: skip
        return connection.scalar(query) or 0

    def _count(self, connection: sa.Connection, newest: int, facts: int, spans: int) -> None:
        start = {"run": self._run, "stream_sequence": 0, "facts": 0, "spans": 0}
        connection.execute(self._statements.insert("intake", tuple(start)), [start])
        larger = sa.case((INTAKE.c.stream_sequence < newest, newest), else_=INTAKE.c.stream_sequence)
        connection.execute(
            INTAKE.update().where(INTAKE.c.run == self._run).values(
                stream_sequence=larger, facts=INTAKE.c.facts + facts, spans=INTAKE.c.spans + spans
            )
        )  # fmt: skip


class _Statements:
    """`INSERT … ON CONFLICT` for each table and set of columns, built once."""

    def __init__(self, insert: Callable[[sa.Table], Any]) -> None:
        self.of_dialect = insert
        self._made: dict[tuple[str, tuple[str, ...]], Any] = {}

    def insert(self, table: str, columns: tuple[str, ...]) -> Any:
        """Rows that exist stay as they are; in MERGED tables, columns that are still NULL are filled; in ADDED tables, numbers are added."""
        if (table, columns) not in self._made:
            self._made[table, columns] = self._build(METADATA.tables[table], ("run", *columns))
        return self._made[table, columns]

    def _build(self, table: sa.Table, columns: tuple[str, ...]) -> Any:
        statement = self.of_dialect(table)
        keys = [column.name for column in table.primary_key]
        others = [name for name in columns if name not in keys]
        if table.name not in MERGED | ADDED or not others:
            return statement.on_conflict_do_nothing(index_elements=keys)
        filled = {name: sa.func.coalesce(table.c[name], statement.excluded[name]) for name in others}
        if table.name in ADDED:
            numbers = [name for name in others if not isinstance(table.c[name].type, sa.Text)]
            filled |= {name: sa.func.coalesce(table.c[name], 0) + statement.excluded[name] for name in numbers}
        return statement.on_conflict_do_update(index_elements=keys, set_=filled)


def _fail(jobs: list[_Job], error: BaseException) -> None:
    for job in jobs:
        job.done.set_exception(error)

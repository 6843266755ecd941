"""The one thread that writes: whatever waits when it looks becomes one transaction.

write_facts / write_spans ─▶ queue ─▶ [thread] BEGIN, rows, COMMIT ─▶ the caller's future

A database that is locked, full or away is tried again with growing pauses for as long as it takes; nobody's future resolves meanwhile, so nothing
is acknowledged. A record that the database can never hold (a value out of range) is found by halves, named in `Stored.refused`, and keeps nothing
else back; which of the two it is: storage/trouble.py.
"""

import asyncio
import logging
import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from gyre.bus.subjects import natural_key
from gyre.records import Fact
from services.ledger.core.costs import added_up
from services.ledger.core.parts import in_parts
from services.ledger.core.rows import rows_of
from services.ledger.core.tables import ADDED, FACTS, MERGED, METADATA
from services.ledger.storage.database import Database
from services.ledger.storage.settling import TELLING, settle, unsettle
from services.ledger.storage.trouble import is_trouble

log = logging.getLogger(__name__)

TRANSACTION_JOBS_MAX = 64
"""Jobs of one transaction: bounds its length when the database was away and much has piled up."""
QUEUE_JOBS_MAX = 256
"""Jobs that may wait. Each caller waits for its own, so this is only reached by very many OTLP clients."""
RETRY_FIRST_S, RETRY_MAX_S = 0.1, 5.0
"""Pauses between tries while the database does not take the transaction."""
ROOM_WAIT_S = 0.05
"""Between two looks for room in the queue, by who cannot be told to come again."""

_COUNT = sa.text("""
INSERT INTO intake (run, stream_sequence, facts, spans) VALUES (:run, :newest, :facts, :spans)
ON CONFLICT (run) DO UPDATE SET facts = intake.facts + excluded.facts, spans = intake.spans + excluded.spans,
    stream_sequence = CASE WHEN intake.stream_sequence < excluded.stream_sequence THEN excluded.stream_sequence ELSE intake.stream_sequence END
""")


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
    """Facts or spans of one call."""

    facts: Sequence[tuple[Fact, int]]
    spans: Sequence[dict[str, Any]]
    done: "Future[Stored]" = field(default_factory=Future)

    @property
    def units(self) -> Sequence[Any]:
        return self.facts or self.spans

    def halves(self) -> "tuple[_Job, _Job]":
        middle = len(self.units) // 2
        return _Job(self.facts[:middle], self.spans[:middle]), _Job(self.facts[middle:], self.spans[middle:])


class _GivenUp(Exception):
    """The database did not take the transaction, and the writer is being closed."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


def _added(parts: "list[tuple[_Job, Stored]]") -> Stored:
    """What became of a job, from what became of its parts in their order."""
    whole, before = Stored(), 0
    for job, stored in parts:
        whole.new += stored.new
        whole.fresh += stored.fresh
        whole.refused += [(before + index, reason) for index, reason in stored.refused]
        before += len(job.units)
    return whole


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
        """Facts with their stream sequence; returns when they are durable. Waits while too much is waiting."""
        while True:
            try:
                return await self._submit(_Job(facts, ()))
            except queue.Full:
                await asyncio.sleep(ROOM_WAIT_S)

    async def write_spans(self, spans: Sequence[dict[str, Any]]) -> Stored:
        """Rows of the table `spans`; returns when they are durable. Raises queue.Full when too much is waiting."""
        return await self._submit(_Job((), spans))

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
        """Everybody hears what became of theirs: whatever happens here, the thread goes on."""
        try:
            for job, stored in zip(jobs, self._stored(jobs), strict=True):
                job.done.set_result(stored)
        except Exception as error:
            for job in jobs:
                if not job.done.done():
                    job.done.set_exception(error.error if isinstance(error, _GivenUp) else error)

    def _stored(self, jobs: list[_Job]) -> list[Stored]:
        """One transaction; jobs alone, and a job in halves, where something in it can never be stored. Raises _GivenUp."""
        try:
            return self._in_one(jobs)
        except _GivenUp:
            raise
        except Exception as error:
            if len(jobs) > 1:
                return [self._stored([job])[0] for job in jobs]
            if len(jobs[0].units) <= 1:
                log.exception("a record could not be stored")
                return [Stored(refused=[(0, str(error))])]
            halves = jobs[0].halves()
            return [_added([(half, self._stored([half])[0]) for half in halves])]

    def _in_one(self, jobs: list[_Job]) -> list[Stored]:
        """One transaction, however long the database takes to accept it. Raises _GivenUp where it does not and the writer is closed, and
        whatever is the fault of what was to be stored."""
        pause_s = 0.0
        while True:
            is_begun = False
            try:
                with self._database.writing.begin() as connection:
                    is_begun = True
                    results = [self._apply(connection, job) for job in jobs]
                    is_begun = False
                return results
            except Exception as error:
                if is_begun and not is_trouble(error):
                    raise
                cause = getattr(error, "orig", None) or error
                if not pause_s:
                    self._on_trouble(f"the ledger database does not take writes: {cause}")
                pause_s = min(max(2 * pause_s, RETRY_FIRST_S), RETRY_MAX_S)
                log.warning("ledger database: %s; trying again in %g s", cause, pause_s)
                if self._closing.wait(pause_s):
                    raise _GivenUp(error) from error

    def _apply(self, connection: sa.Connection, job: _Job) -> Stored:
        if job.spans:
            new = self._spans(connection, job.spans)
            if new:
                self._count(connection, 0, 0, new)
            return Stored(new=new)
        fresh = self._unknown(connection, job.facts)
        grouped: dict[tuple[str, tuple[str, ...]], list[dict[str, Any]]] = {}
        for key, (fact, sequence) in fresh.items():
            for table, row in (("facts", {"key": key, "sequence": sequence}), *rows_of(fact)):
                grouped.setdefault((table, tuple(row)), []).append({"run": self._run, **row})
        for (table, columns), rows in grouped.items():
            if table in ADDED:
                rows = added_up(rows, [column.name for column in METADATA.tables[table].primary_key])
            connection.execute(self._statements.insert(table, columns), rows)
        newest = max((sequence for _, sequence in job.facts), default=0)
        told = {row["group_id"] for (table, _), rows in grouped.items() if table in TELLING for row in rows}
        unsettle(connection, self._statements.of_dialect, self._run, told, newest)
        if fresh:
            self._settle(connection)
            self._count(connection, newest, len(fresh), 0)
        return Stored(new=len(fresh), fresh=[fact for fact, _ in fresh.values()])

    def _settle(self, connection: sa.Connection) -> None:
        """Settled lines make questions quick and tell nothing of their own: groups that cannot be settled are no fault of what is stored now."""
        try:
            with connection.begin_nested():
                settle(connection, self._run)
        except Exception as error:
            if is_trouble(error):
                raise
            log.warning("groups could not be settled: %s", error)

    def _unknown(self, connection: sa.Connection, facts: Sequence[tuple[Fact, int]]) -> dict[str, tuple[Fact, int]]:
        """Natural key → fact, for the first of each key that is not stored yet."""
        first: dict[str, tuple[Fact, int]] = {}
        for fact, sequence in facts:
            first.setdefault(natural_key(fact), (fact, sequence))
        for keys in in_parts(list(first)):
            query = sa.select(FACTS.c.key).where(FACTS.c.run == self._run, FACTS.c.key.in_(keys))
            for key in connection.scalars(query):
                del first[key]
        return first

    def _spans(self, connection: sa.Connection, spans: Sequence[dict[str, Any]]) -> int:
        """How many were new, by what the database says of them: a driver's row counts of many rows cannot be relied on."""
        if self._database.is_sqlite:
            return self._spans_of_sqlite(connection, spans)
        new = 0
        for part in in_parts(spans):
            rows = [{**span, "run": span["run"] or self._run} for span in part]
            statement = self._statements.insert("spans", tuple(rows[0])).returning(METADATA.tables["spans"].c.span_id)
            new += len(connection.scalars(statement, rows).all())
        return new

    def _spans_of_sqlite(self, connection: sa.Connection, spans: Sequence[dict[str, Any]]) -> int:
        """By the driver itself, which takes a fifth of the time: spans are most of the rows of a run."""
        driver = connection.connection.dbapi_connection
        columns = tuple(spans[0])
        insert = (
            f"INSERT INTO spans ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))}) ON CONFLICT DO NOTHING"
        )
        values, run, before = itemgetter(*columns), columns.index("run"), driver.total_changes
        rows = [row if row[run] else (*row[:run], self._run, *row[run + 1 :]) for row in map(values, spans)]
        connection.exec_driver_sql(insert, rows)
        return driver.total_changes - before

    def _count(self, connection: sa.Connection, newest: int, facts: int, spans: int) -> None:
        connection.execute(_COUNT, {"run": self._run, "newest": newest, "facts": facts, "spans": spans})


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

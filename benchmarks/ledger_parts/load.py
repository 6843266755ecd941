"""Millions of facts in a database: some groups are stored as facts in seed.db, and copies of their rows are made in the database beside it.

Each copy has names of its own and later steps and times. A slice of them is one transaction, so a loading that was stopped goes on where it was.
"""

import asyncio
import sqlite3
import time
from collections.abc import Sequence
from pathlib import Path

import sqlalchemy as sa

from benchmarks.ledger_parts.told import GROUPS, GROUPS_PER_STEP, RUN, told
from gyre import records as r
from services.ledger.core.tables import METADATA
from services.ledger.storage import Database, Writer
from services.ledger.storage.settling import settle_all

BATCH_FACTS = 500
"""As the intake gathers them."""
BATCHES_UNDER_WAY = 2
SLICE_COPIES = 50
STEP_S = 60
"""From one step of the copies to the next."""
_IDS = {"key", "group_id", "execution_id", "sample_id", "call_id", "micro_id", "parent"}
_STEPS = {"step", "version", "version_min", "version_mean", "version_max", "policy_version"}

_SUMS = ("turns", "tokens", "external_calls", "occupancy_s")
_TOTALS = f"""
INSERT INTO main.book_totals (run, purpose, {", ".join(_SUMS)})
SELECT run, purpose, {", ".join(f"{name} * :copies" for name in _SUMS)} FROM seed.book_totals WHERE true
ON CONFLICT DO UPDATE SET {", ".join(f"{name} = coalesce({name}, 0) + coalesce(excluded.{name}, 0)" for name in _SUMS)}
"""
"""Running totals have no names of their own: a copy is added to them."""


def stored_per_s(database: Database, facts: Sequence[r.Fact]) -> float:
    """Facts a second through the writer's thread, each transaction on disk before its facts count."""

    async def store() -> float:
        writer, under_way = Writer(database, RUN), asyncio.Semaphore(BATCHES_UNDER_WAY)
        writer.start()

        async def one(start: int) -> None:
            async with under_way:
                batch = facts[start : start + BATCH_FACTS]
                stored = await writer.write_facts([(fact, start + place) for place, fact in enumerate(batch)])
                assert stored.new == len(batch) and not stored.refused

        begin_s = time.perf_counter()
        await asyncio.gather(*(one(start) for start in range(0, len(facts), BATCH_FACTS)))
        took_s = time.perf_counter() - begin_s
        await asyncio.to_thread(writer.close)
        return len(facts) / took_s

    return asyncio.run(store())


def load(database: Database, facts_min: int) -> int:
    """At least so many facts, all groups settled; how many there are. Goes on from what is there."""
    count = sa.text("SELECT count(*) FROM facts")
    path = Path(database.url.database)
    seed = Database(f"sqlite:///{path.with_name('seed.db')}")
    seed.migrate()
    with seed.read() as connection:
        is_told = connection.scalar(count)
    if not is_told:
        stored_per_s(seed, told())
        settle_all(seed.writing, keep=0)
    with seed.read() as connection, database.read() as copies:
        each, done = connection.scalar(count), copies.scalar(count)
    seed.close()
    for first in range(done // each, -(-facts_min // each), SLICE_COPIES):
        multiply(path, first, min(-(-facts_min // each), first + SLICE_COPIES) - 1)
    with database.read() as connection:
        return connection.scalar(count)


def multiply(path: Path, first: int, last: int) -> None:
    """Copies number `first` to `last` of the rows of seed.db beside it, in one transaction."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("ATTACH ? AS seed", (str(path.with_name("seed.db")),))
    connection.execute("BEGIN IMMEDIATE")
    for table in METADATA.sorted_tables:
        names = [column.name for column in table.columns]
        if table.name in ("intake", "unsettled", "alarms") or not (_IDS | _STEPS) & set(names):
            continue
        connection.execute(
            f"""INSERT INTO main.{table.name} ({", ".join(map(_quoted, names))})
                WITH RECURSIVE n(k) AS (SELECT :first UNION ALL SELECT k + 1 FROM n WHERE k < :last)
                SELECT {", ".join(_copied(name, table.name) for name in names)} FROM n, seed.{table.name} t""",
            {"first": first, "last": last},
        )
    connection.execute(_TOTALS, {"copies": last - first + 1})
    connection.execute("COMMIT")
    connection.close()


def _copied(name: str, table: str) -> str:
    if name in _IDS:
        return f"CASE WHEN t.{name} = '' THEN '' ELSE printf('n%04d-', n.k) || t.{name} END"
    every = GROUPS if table in ("steps", "step_samples") else GROUPS // GROUPS_PER_STEP
    if name in _STEPS:
        return f"t.{name} + n.k * {every}"
    return f"t.{name} + n.k * {STEP_S * GROUPS // GROUPS_PER_STEP}" if name.endswith("at_s") else f"t.{_quoted(name)}"


def _quoted(name: str) -> str:
    return f'"{name}"'

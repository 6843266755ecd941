"""Facts are stored once, whatever the order and number of deliveries; the schema comes up everywhere."""

import asyncio
import contextlib
import queue
import sqlite3
import tempfile
from itertools import pairwise
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gyre import records as r
from gyre.bus.subjects import _RULES
from gyre.errors import ConfigError
from services.ledger.core.fields import COST_COLUMNS, FIELD_TABLE
from services.ledger.core.rows import FACT_TYPES
from services.ledger.core.tables import METADATA
from services.ledger.queries import audit, bill, books, drops, explain
from services.ledger.storage import Database, Writer
from services.ledger.storage.trouble import is_trouble
from tests.support import WAIT_S
from tests.unit.ledger.ledger_history import RUN, changed, config, dump, history, kept_books, leased, store

HISTORY = history()


def answers(database):
    with database.read() as connection:
        return (books(connection, RUN, config()), drops(connection, RUN, config()), audit(connection, RUN, config()),
                explain(connection, RUN, "g000001-e1-a2"), dump(connection))  # fmt: skip


@pytest.fixture(scope="module")
def in_order(tmp_path_factory):
    database = kept_books(tmp_path_factory.mktemp("ordered") / "ledger.db", HISTORY)
    yield answers(database)
    database.close()


@given(
    order=st.permutations(range(len(HISTORY))),
    again=st.lists(st.integers(0, len(HISTORY) - 1), max_size=20),
    cuts=st.lists(st.integers(1, len(HISTORY)), max_size=4),
)
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_order_any_repeats_any_batching_give_the_same_books(in_order, order, again, cuts):
    """C6, E: the natural key makes a fact; when and how often it is delivered does not matter."""
    facts = [HISTORY[index] for index in [*order, *again]]
    with tempfile.TemporaryDirectory() as folder:
        database = kept_books(Path(folder) / "ledger.db", [])
        bounds = [0, *sorted(cuts), len(facts)]
        for start, end in pairwise(bounds):
            store(database, facts[start:end])
        found = answers(database)
        database.close()
    assert found == in_order


def test_two_runs_share_a_database_and_not_their_books(tmp_path, in_order):
    """C7: every key begins with the run."""
    database = kept_books(tmp_path / "ledger.db", HISTORY)
    store(database, HISTORY[:20], run="other")
    with database.read() as connection:
        assert books(connection, RUN, config()) == in_order[0]
        assert books(connection, "other", config())["executions"]["trained"] == 0
    database.close()


def test_every_fact_type_has_a_rule():
    """E: a type added to the facts stream and forgotten here would be an intake that stops."""
    assert set(FACT_TYPES) == set(_RULES) - {r.TaskDispatched, r.MicroStep}


def test_each_field_of_the_design_has_its_column():
    """C13, C12"""
    columns = {f"{table.name}.{column.name}" for table in METADATA.tables.values() for column in table.columns}
    named = {column for group in FIELD_TABLE.values() for column in group} | set(COST_COLUMNS.values())
    assert named <= columns
    assert set(FIELD_TABLE) == {
        "duration tier", "queue wait", "promotions", "snapshot ordinal", "rollback loss", "batch completion rule",
        "interaction turns", "environment occupancy", "external calls", "quota left", "weight version", "config fingerprint",
        "sample age", "drop count", "failure share kept", "image digest", "seed", "tool versions", "dependency snapshot",
    }  # fmt: skip


def differences(database):
    with database.read() as connection:
        return compare_metadata(MigrationContext.configure(connection, opts={"compare_type": True}), METADATA)


def test_migrations_make_the_schema_and_leave_existing_books_alone(tmp_path):
    """C6: on an empty file, again, and on a ledger with facts in it."""
    database = kept_books(tmp_path / "ledger.db", HISTORY)
    assert differences(database) == []
    before = answers(database)
    database.migrate()
    assert answers(database) == before
    database.close()


def test_a_reader_cannot_write_and_sees_one_state(whole):
    """C6: what is committed meanwhile is not seen by a question already begun."""
    with whole.read() as connection:
        count = sa.text("SELECT count(*) FROM attempts")
        before = connection.scalar(count)
        store(whole, [leased(7, 0)])
        assert connection.scalar(count) == before
        with pytest.raises(sa.exc.OperationalError, match="readonly"):
            connection.execute(sa.text("DELETE FROM attempts"))


def test_a_wrong_database_url_is_a_configuration_error():
    """Style: user errors read well."""
    with pytest.raises(ConfigError, match=r"ledger\.database 'nosuch"):
        Database("nosuch://x")


async def test_a_locked_database_is_waited_for_with_an_alarm_and_nothing_is_lost(tmp_path, monkeypatch):
    """C6: another process holds the write lock; the write neither fails nor is said to be done before it is."""
    monkeypatch.setattr("services.ledger.storage.database.BUSY_TIMEOUT_S", 0.05)
    database = kept_books(tmp_path / "ledger.db", [])
    trouble, troubled = [], asyncio.Event()
    loop = asyncio.get_running_loop()

    def on_trouble(message: str) -> None:
        trouble.append(message)
        loop.call_soon_threadsafe(troubled.set)

    writer = Writer(database, RUN, on_trouble)
    writer.start()
    blocker = sa.create_engine(f"sqlite:///{tmp_path / 'ledger.db'}").raw_connection()
    blocker.driver_connection.isolation_level = None
    blocker.driver_connection.execute("BEGIN IMMEDIATE")
    writing = asyncio.ensure_future(writer.write_facts([(leased(1, 0), 1)]))
    await troubled.wait()
    assert not writing.done()
    blocker.driver_connection.execute("COMMIT")
    stored = await writing
    blocker.close()
    writer.close()
    database.close()
    assert stored.new == 1
    assert trouble == ["the ledger database does not take writes: database is locked"]


async def test_a_record_that_cannot_be_stored_is_named_and_holds_up_nothing(tmp_path):
    """C6: 2**64 − 1 fits no 64-bit signed column; its neighbours are stored."""
    database = kept_books(tmp_path / "ledger.db", [])
    writer = Writer(database, RUN)
    writer.start()
    bad = r.WeightsPublished(version=2**64 - 1, path="", checksum="", bytes=0, at_s=0)
    stored = await writer.write_facts([(leased(1, 0), 1), (bad, 2), (leased(1, 1), 3)])
    writer.close()
    assert (stored.new, [index for index, _ in stored.refused]) == (2, [1])
    with database.read() as connection:
        assert connection.scalar(sa.text("SELECT facts FROM intake")) == 2
    database.close()


@contextlib.asynccontextmanager
async def writing(database, on_trouble=lambda message: None):
    writer = Writer(database, RUN, on_trouble)
    writer.start()
    try:
        async with asyncio.timeout(WAIT_S):
            yield writer
    finally:
        await asyncio.to_thread(writer.close)


def spans(count: int) -> list[dict]:
    """Each of a trace of its own."""
    return [
        {"run": "", "trace_id": f"{number:032x}", "span_id": f"{number:016x}", "name": "s"}
        for number in range(1, count + 1)
    ]


@pytest.mark.parametrize(("kind", "count"), [("books_of", 20_000), ("on_postgres", 33_000)])
async def test_any_number_of_spans_is_stored_once_and_facts_come_after_them(request, kind, count):
    """Two values for each span are more than the database takes in one statement: 32,766 (SQLite's own default) and 65,535."""
    database = request.getfixturevalue(kind)([])
    if database.is_sqlite:
        database.writing.dispose()
        sa.event.listen(
            database.writing, "connect", lambda made, _: made.setlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER, 32_766)
        )
    async with writing(database) as writer:
        assert (await writer.write_spans(spans(count))).new == count
        again = await writer.write_spans([*spans(count)[-1000:], *spans(count + 500)[-1000:]])
        assert (again.new, again.refused) == (500, [])
        assert (await writer.write_facts([(leased(1, 0), 1)])).new == 1
    with database.read() as connection:
        assert connection.execute(sa.text("SELECT facts, spans FROM intake")).one() == (1, count + 500)


def test_one_fact_may_tell_of_more_groups_than_a_statement_takes(books_of):
    """A batch of very many groups takes all their lines back, and one call of very many facts asks for all their keys."""
    database = books_of([])
    sa.event.listen(
        database.writing, "connect", lambda made, _: made.setlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER, 3_000)
    )
    database.writing.dispose()
    groups = [f"g{number:06d}" for number in range(4_000)]
    closed = changed(HISTORY, r.BatchClosed, lambda x: x.step == 0, groups=groups)
    store(database, [fact for fact in closed if isinstance(fact, r.BatchClosed) and fact.step == 0])
    store(database, [leased(index, 0) for index in range(4_000)])
    with database.read() as connection:
        assert connection.scalar(sa.text("SELECT count(*) FROM unsettled")) > 3_000
        assert connection.scalar(sa.text("SELECT count(*) FROM attempts")) == 4_000


def broken_for(database, sample: str) -> None:
    """An error that is no constraint's, and that no other try takes away, for this attempt alone."""
    with database.writing.begin() as connection:
        connection.exec_driver_sql(
            f"CREATE TRIGGER broken BEFORE INSERT ON attempts WHEN new.sample_id = '{sample}' BEGIN SELECT abs(-9223372036854775807 - 1); END"
        )


async def test_a_fact_that_no_transaction_takes_is_named_and_holds_up_nothing(books_of):
    """Neither for ever nor with an alarm: the database is well."""
    database, trouble = books_of([]), []
    broken_for(database, "g000007-e0-a1")
    facts = [leased(index, 0) for index in range(20)]
    async with writing(database, trouble.append) as writer:
        stored, other = await asyncio.gather(
            writer.write_facts([(fact, sequence) for sequence, fact in enumerate(facts, 1)]),
            writer.write_facts([(leased(30, 0), 50)]),
        )
    assert (stored.new, [index for index, _ in stored.refused], other.new, trouble) == (19, [7], 1, [])
    assert "integer overflow" in stored.refused[0][1]
    assert [fact.group_id for fact in stored.fresh] == [fact.group_id for fact in facts if fact.group_id != "g000007"]


async def test_groups_that_cannot_be_settled_are_no_facts_fault(books_of, monkeypatch):
    """A line of a bill that cannot be made refuses no fact that happens to come then."""

    def broken(connection, run):
        connection.exec_driver_sql("INSERT INTO facts (run, key) VALUES ('x', 'half made')")
        connection.exec_driver_sql("SELECT abs(-9223372036854775807 - 1)")

    monkeypatch.setattr("services.ledger.storage.writer.settle", broken)
    database = books_of([])
    async with writing(database) as writer:
        assert (await writer.write_facts([(leased(1, 0), 1)])).new == 1
    with database.read() as connection:
        assert connection.scalars(sa.text("SELECT run FROM facts")).all() == [RUN]


async def test_facts_wait_for_room_where_spans_are_told_to_come_again(books_of, monkeypatch):
    """E: no exporter, however eager, ends the intake."""
    monkeypatch.setattr("services.ledger.storage.writer.QUEUE_JOBS_MAX", 1)
    writer = Writer(books_of([]), RUN)
    first = asyncio.ensure_future(writer.write_spans(spans(1)))
    fact = asyncio.ensure_future(writer.write_facts([(leased(1, 0), 1)]))
    await asyncio.sleep(0)
    with pytest.raises(queue.Full):
        await writer.write_spans(spans(1))
    writer.start()
    async with asyncio.timeout(WAIT_S):
        assert ((await first).new, (await fact).new) == (1, 1)
    await asyncio.to_thread(writer.close)


def raised(do) -> sa.exc.DBAPIError:
    """What SQLite says, as SQLAlchemy hands it on."""
    with sa.create_engine("sqlite://").connect() as connection, pytest.raises(sa.exc.DBAPIError) as error:
        do(connection)
    return error.value


def fill(connection) -> None:
    connection.exec_driver_sql("PRAGMA max_page_count = 2")
    connection.exec_driver_sql("CREATE TABLE a (b)")
    connection.exec_driver_sql("INSERT INTO a VALUES (zeroblob(100000))")


def too_many(connection) -> None:
    connection.connection.driver_connection.setlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER, 2)
    connection.exec_driver_sql("SELECT ?, ?, ?", (1, 2, 3))


@pytest.mark.parametrize(("is_theirs", "do"), [
    (True, fill),
    (True, lambda c: c.exec_driver_sql("SELECT 1 FROM absent")),
    (True, lambda c: c.exec_driver_sql("PRAGMA query_only = 1") and c.exec_driver_sql("CREATE TABLE a (b)")),
    (False, too_many),
    (False, lambda c: c.exec_driver_sql("SELECT zeroblob(2000000000)")),
    (False, lambda c: c.exec_driver_sql("SELECT ?", ([],))),
], ids=["full", "schema", "read only", "variables", "too big", "binding"])  # fmt: skip
def test_sqlites_trouble_is_told_from_the_records_fault(is_theirs, do):
    """C6: the one is tried again for as long as it takes, the other never."""
    assert is_trouble(raised(do)) is is_theirs


@pytest.mark.parametrize(("is_theirs", "name"), [
    (True, "DiskFull"), (True, "DeadlockDetected"), (True, "AdminShutdown"), (True, "LockNotAvailable"), (True, "UndefinedTable"),
    (True, "InsufficientPrivilege"), (False, "NumericValueOutOfRange"), (False, "NotNullViolation"), (False, "ProgramLimitExceeded"),
    (False, "OperationalError"),
])  # fmt: skip
def test_postgresqls_trouble_is_told_from_the_records_fault(is_theirs, name):
    """C6: an OperationalError without a state is the driver's own, of more parameters than there may be; a lost connection is told apart."""
    psycopg = pytest.importorskip("psycopg")
    error = sa.exc.OperationalError("INSERT", {}, getattr(psycopg.errors, name)("words"))
    assert is_trouble(error) is is_theirs
    error.connection_invalidated = True
    assert is_trouble(error)


def test_postgresql_keeps_the_same_books(postgres, in_order):
    """C6: one schema, the same answers; repeated deliveries and NUL bytes in an error's text change nothing."""
    database = Database(postgres)
    database.migrate()
    database.migrate()
    assert differences(database) == []
    for facts in (HISTORY[30:], HISTORY, HISTORY[:50]):
        store(database, facts)
    store(database, changed(HISTORY, r.ExecutionEnded, lambda x: True, attempt=9, detail="a\x00b")[-40:], run="nul")
    found = answers(database)
    with database.read() as connection:
        billed = bill(connection, RUN, config(), ("attempt", "tenant", "model_version"))
        total = books(connection, RUN, config())["books"]
    database.close()
    assert found[:4] == in_order[:4]
    assert {
        name: billed["total"][name] for name in ("turns", "tokens_sampled", "occupancy_s", "external_calls")
    } == pytest.approx({name: total[name] for name in ("turns", "tokens_sampled", "occupancy_s", "external_calls")})
    assert [row["model_version"] for row in billed["rows"]] == [None, 0, 1, 2, 0, 1]

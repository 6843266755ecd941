"""What is old goes, and no book, bill or balance moves (C6, C12, C14)."""

import asyncio

import pytest
import sqlalchemy as sa

from gyre.clock import ManualClock
from gyre.errors import InvalidInput
from services.ledger.queries.asked import Asked, ask
from services.ledger.retention import DAY_S, Retention
from services.ledger.storage.compacting import compact
from tests.support import until
from tests.unit.ledger.ledger_history import RUN, call, config, history, store

QUESTIONS = (
    ("audit",),
    ("books",),
    ("bill", "tenant", "model_version"),
    ("drops",),
    ("lineage", "1"),
    ("good",),
    ("tiers",),
)


def answers(database):
    with database.read() as connection:
        return [ask(connection, name, Asked(RUN, config(), tuple(names))) for name, *names in QUESTIONS]


def count(database, table: str) -> int:
    with database.read() as connection:
        return connection.scalar(sa.text(f"SELECT count(*) FROM {table}"))


def spans(database):
    """One that ended at 5 s, one at 50 s."""
    with database.writing.begin() as connection:
        for number, end_s in enumerate((5, 50)):
            connection.execute(sa.text("INSERT INTO spans (run, trace_id, span_id, start_ns, end_ns) VALUES (:run, 't', :id, 0, :end)"),
                               {"run": RUN, "id": str(number), "end": end_s * 10**9})  # fmt: skip


@pytest.mark.parametrize("kind", ["whole", "on_postgres"])
def test_old_call_rows_and_spans_go_and_every_answer_stays(request, kind):
    """Every attempt of the history ended at 10 s; those of seven samples with calls were trained, dropped or evaluated: 14 of 16 call rows."""
    made = request.getfixturevalue(kind)
    database = made(history()) if kind == "on_postgres" else made
    spans(database)
    before = answers(database)
    assert compact(database, RUN, 10.0, 99.0) == {"calls": 0, "samples": 0, "spans": 1}, (
        "what ended at 10 s is not older"
    )
    told = compact(database, RUN, 11.0, 99.0)
    assert (told["calls"], told["spans"]) == (16, 0)
    assert count(database, "calls") == 0 and count(database, "spans") == 1
    assert answers(database) == before
    assert compact(database, RUN, 11.0, 99.0) == {"calls": 0, "samples": 0, "spans": 0}


def test_a_fact_that_comes_once_more_after_all_changes_nothing(whole):
    """C6: its natural key is kept. One that comes late for the first time is counted beside the counts that were left."""
    compact(whole, RUN, 11.0, 99.0)
    before = answers(whole)
    store(whole, history())
    assert answers(whole) == before and count(whole, "calls") == 0
    store(whole, [call(0, 0, 7)])
    assert answers(whole)[1]["books"]["turns"] == before[1]["books"]["turns"] + 1
    compact(whole, RUN, 11.0, 100.0)
    assert answers(whole)[1]["books"]["turns"] == before[1]["books"]["turns"] + 1


def test_what_is_still_under_way_is_kept_however_old(books_of):
    """A sample that is ready and in no step yet may still be asked about, and so may one that runs."""
    facts = [fact for fact in history() if type(fact).__name__ not in ("StepUpdated", "SampleDropped")]
    database = books_of(facts)
    told = compact(database, RUN, 1e12, 99.0)
    assert told["samples"] == 1, "the evaluation alone"
    assert count(database, "calls") == 14


async def test_a_ledger_with_a_retention_deletes_by_itself_and_ends_at_once(whole):
    """`ledger.retention_days`: the history ended 89 days ago; the books are what they were, and a second look has nothing to do."""
    spans(whole)
    before, clock = answers(whole), ManualClock(89 * DAY_S)
    async with Retention(whole, RUN, 90.0, clock) as kept:
        await asyncio.to_thread(kept.look)
        assert count(whole, "calls") == 16, "nothing is older than 90 days"
    async with Retention(whole, RUN, 30.0, clock):
        await until(lambda: count(whole, "calls") == 0 and count(whole, "spans") == 0)
    assert answers(whole) == before


def test_a_retention_that_is_closed_deletes_no_further_slice(whole, monkeypatch):
    """Bounded: a slice at a time, each asked for."""
    monkeypatch.setattr("services.ledger.storage.compacting.SLICE_SAMPLES", 2)
    asked = iter([True, True, False, False])
    told = compact(whole, RUN, 11.0, 99.0, lambda: next(asked))
    assert (told["samples"], told["calls"], told["spans"]) == (4, 8, 0)


@pytest.mark.parametrize("days", [1e6, 1e300])
def test_a_retention_of_more_days_than_there_ever_were_deletes_nothing(whole, days):
    """What somebody writes for `never`: its bound lies before the first moment of 64 bits."""
    spans(whole)
    assert Retention(whole, RUN, days, ManualClock(89 * DAY_S)).look() == {"calls": 0, "samples": 0, "spans": 0}


def test_what_is_no_moment_deletes_nothing(whole):
    """`gyre compact --older-than nan`."""
    with pytest.raises(InvalidInput, match="no moment"):
        compact(whole, RUN, float("nan"), 99.0)
    assert compact(whole, RUN, float("inf"), 99.0)["calls"] == 16


def test_a_database_that_does_not_take_it_is_left_for_the_next_look(whole, monkeypatch):
    """E: facts come first; no setting makes a ledger that keeps no books."""

    def locked(*_):
        raise sa.exc.OperationalError("DELETE", {}, RuntimeError("database is locked"))

    kept = Retention(whole, RUN, 1.0, ManualClock(89 * DAY_S))
    with monkeypatch.context() as patch:
        patch.setattr("services.ledger.retention.compact", locked)
        assert kept.look() == {}
    assert kept.look()["calls"] == 16

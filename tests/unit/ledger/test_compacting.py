"""What is old goes, and no book, bill or balance moves (C6, C12, C14)."""

import pytest
import sqlalchemy as sa

from services.ledger.queries.asked import Asked, ask
from services.ledger.storage.compacting import compact
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

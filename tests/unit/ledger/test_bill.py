"""Bills add up to the books, whatever they are grouped by; retries' extra cost by hand (C12)."""

import importlib
import itertools
import random
import sqlite3
import tempfile
from pathlib import Path

import msgspec
import numpy as np
import pytest
import sqlalchemy as sa
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from gyre import records as r
from gyre.config import PriceConfig
from gyre.errors import InvalidInput, Unavailable
from gyre.ids import execution_id, group_id, sample_id
from services.ledger.core.costs import by_version, training_shares
from services.ledger.queries import bill, books
from services.ledger.queries.bill import DIMENSIONS
from services.ledger.queries.broken import BILL_LINES
from services.ledger.queries.sql import rows
from services.ledger.storage import settling
from tests.unit.ledger.ledger_history import RUN, call, config, dispatched, ended, kept_books, leased, started, store

older, newest = (
    importlib.import_module(f"services.ledger.migrations.versions.{name}")
    for name in ("0004_questions", "0006_book_lines")
)

TOTALS = """
SELECT execution_id, attempt, sum(turns) AS turns, sum(tokens) AS tokens, sum(occupancy_s) AS occupancy_s, sum(targets) AS targets FROM (
  SELECT execution_id, attempt, 1 AS turns, output_tokens AS tokens, 0.0 AS occupancy_s, 0 AS targets FROM calls WHERE run = :run
  UNION ALL SELECT execution_id, attempt, 0, 0, occupancy_s, 0 FROM attempts WHERE run = :run
  UNION ALL SELECT a.execution_id, a.attempt, 0, 0, 0.0, t.targets FROM step_samples t
            JOIN attempts a ON a.run = t.run AND a.sample_id = t.sample_id WHERE t.run = :run
) x GROUP BY execution_id, attempt ORDER BY execution_id, attempt
"""
"""What the running totals must be, from the facts' own tables."""


def updated(step: int, seen: dict[str, dict[str, float]], compute_s: float, elites=()) -> r.StepUpdated:
    metrics = {"compute_s": compute_s, "targets": sum(about.get("targets", 0) for about in seen.values())}
    return r.StepUpdated(step=step, version=step + 1, burst=0, sample_ids=[name for name in seen if name not in elites],
                         micro_cells={}, metrics=metrics, opened_at_s=1.0, at_s=2.0, sample_metrics=seen)  # fmt: skip


def retried() -> list[r.Fact]:
    """One execution: its first attempt made three calls on weights 4 and was lost after 60 s; the second, two on weights 4, 4, 5, was trained."""
    lost = [
        ended(0, 0, 1, turns=3, ending="failed", occupancy_s=60.0),
        *(retold(0, 0, n, 1, [4, 4, 4]) for n in range(3)),
    ]
    good = [ended(0, 0, 2, turns=2, occupancy_s=30.0), *(retold(0, 0, n, 2, [4, 4, 5]) for n in range(2))]
    step = updated(7, {sample_id("g000000-e0", 2): {"targets": 6.0, "tokens": 12.0}}, compute_s=9.0)
    return [*dispatched(0, 4), leased(0, 0, 1), started(0, 0, 1), *lost, leased(0, 0, 2), started(0, 0, 2), *good, step]


def retold(index: int, member: int, number: int, attempt: int, versions: list[int], tokens: int = 3) -> r.CallRecorded:
    return msgspec.structs.replace(
        call(index, member, number, attempt),
        versions=r.pack(versions, "int32"), output_ids=r.pack([9] * tokens, "int32"),
    )  # fmt: skip


def asked(database, *by: str, settings=None) -> dict:
    with database.read() as connection:
        return bill(connection, RUN, settings or config(), by)


def test_retries_extra_cost_stands_in_columns_of_its_own(books_of):
    """C12: one of two attempts is extra, with its 3 of 5 turns, 9 of 15 tokens, 60 of 90 s and 3 of 5 external calls."""
    row = asked(books_of(retried()), "tenant", "task_type")["rows"][0]
    assert (row["tenant"], row["task_type"], row["executions"], row["attempts"]) == ("default", "repair", 1, 2)
    assert (row["turns"], row["tokens_sampled"], row["occupancy_s"], row["external_calls"]) == (5, 15, 90, 5)
    assert (row["retry_attempts"], row["retry_turns"], row["retry_tokens_sampled"]) == (1, 3, 9)
    assert (row["retry_occupancy_s"], row["retry_external_calls"]) == (60, 3)
    assert (row["tokens_trained"], row["compute_s"]) == (6, 9)


def test_an_attempt_of_several_versions_is_shared_by_its_tokens(books_of):
    """C12, C7: the second attempt has 4 of 6 tokens by weights 4 and 2 by weights 5, hence 2/3 and 1/3 of everything it cost."""
    four, five = asked(books_of(retried()), "model_version")["rows"]
    assert (four["model_version"], four["tokens_sampled"]) == (4, 9 + 4)
    assert four["occupancy_s"] == pytest.approx(60 + 20)
    assert (five["model_version"], five["tokens_sampled"]) == (5, 2)
    assert (five["occupancy_s"], five["compute_s"], five["turns"]) == pytest.approx((10, 3, 2 / 3))
    assert (four["retry_occupancy_s"], five["retry_occupancy_s"]) == (60, 0)


def test_money_is_shown_where_prices_are_set(books_of):
    """C12: 90 s at 40 an hour is 1; 5 calls at 0.2 is 1; 15 tokens at 2e5 a million is 3; 9 s at 400 an hour is 1. Retries: 2/3, 0.6, 1.8."""
    database = books_of(retried())
    assert "cost" not in asked(database)["columns"]
    prices = PriceConfig(per_occupancy_hour=40, per_external_call=0.2, per_million_tokens=2e5, per_gpu_hour=400)
    priced = msgspec.structs.replace(config(), ledger=msgspec.structs.replace(config().ledger, prices=prices))
    total = asked(database, "attempt", settings=priced)["total"]
    assert (total["cost"], total["retry_cost"]) == pytest.approx((6, 2 / 3 + 0.6 + 1.8))


def test_a_price_beyond_whole_numbers_of_64_bits_is_still_a_price(books_of):
    """9 s of computing at 3.6e25 an hour: 9e22."""
    prices = PriceConfig(per_gpu_hour=3.6e25)
    priced = msgspec.structs.replace(config(), ledger=msgspec.structs.replace(config().ledger, prices=prices))
    assert asked(books_of(retried()), "attempt", settings=priced)["total"]["cost"] == pytest.approx(9e22)


def test_what_there_is_no_bill_by_is_said(books_of):
    """C12"""
    with pytest.raises(InvalidInput, match="no bill by colour: name each once of tenant, task_type"):
        asked(books_of([]), "colour", "tenant")
    with pytest.raises(InvalidInput, match="no bill by tenant,tenant"):
        asked(books_of([]), "tenant", "tenant")


def test_a_bill_of_nothing_is_empty(books_of):
    """C12"""
    answer = asked(books_of([]), "tenant")
    assert answer["rows"] == [] and answer["total"]["turns"] == 0


def test_tokens_by_version_always_add_up():
    """C7: also where a record holds fewer or more versions than tokens, or none."""
    assert by_version(np.array([3, 3, 4], "int32"), 3) == {3: 2, 4: 1}
    assert by_version(np.array([3], "int32"), 3) == {3: 1, -1: 2}
    assert by_version(np.array([3, 4, 4], "int32"), 1) == {3: 1}
    assert by_version(np.array([-7], "int32"), 1) == {-1: 1}
    assert by_version(np.array([], "int32"), 0) == {-1: 0}


def test_a_steps_seconds_are_shared_by_tokens_and_evenly_where_none_are_known():
    """C12: 10 s over 30 and 10 tokens; a replay of the elite store has its share; an emulated trainer says nothing of tokens."""
    fact = updated(0, {"g000000-e0-a1": {"tokens": 30.0, "targets": 3.0}, "g000001-e0-a1": {"tokens": 10.0, "targets": 1.0}}, 10.0,
                   elites=("g000001-e0-a1",))  # fmt: skip
    assert [share["compute_s"] for share in training_shares(fact).values()] == [7.5, 2.5]
    assert [share["compute_s"] for share in training_shares(updated(0, {"a": {}, "b": {}}, 10.0)).values()] == [5, 5]


def generated(seed: int) -> list[r.Fact]:
    """A run of any shape: attempts that are lost, calls of several versions, unsound records, samples trained, replayed or not."""
    chance = random.Random(seed)
    facts, samples = [], []
    for index in range(chance.randint(1, 6)):
        purpose = chance.choice(("train", "train", "evaluation"))
        told = dispatched(index, index, purpose)
        task = msgspec.structs.replace(told[0].task, tenant=chance.choice("ab"), task_type=chance.choice("xy"))
        facts += [msgspec.structs.replace(told[0], task=task), told[1]]
        for member, attempt in itertools.product(range(len(told[1].execution_ids)), range(1, chance.randint(1, 3) + 1)):
            facts.append(leased(index, member, attempt))
            for number in range(chance.randint(0, 3)):
                tokens = chance.randint(0, 4)
                versions = [
                    index + chance.randint(-1, 2) for _ in range(max(0, tokens + chance.choice((0, 0, 0, -1, 1))))
                ]
                made = retold(index, member, number, attempt, versions, tokens)
                facts.append(msgspec.structs.replace(made, purpose=purpose))
            if chance.random() < 0.8:
                facts.append(ended(index, member, attempt, occupancy_s=chance.random() * 100, purpose=purpose))
        samples += [sample_id(execution_id(group_id(index), member), attempt)] if purpose == "train" else []
    for step in range(2):
        seen = {
            name: {"targets": float(chance.randint(1, 9)), "tokens": float(chance.randint(1, 9))}
            for name in samples
            if chance.random() < 0.7
        }
        elites = [name for name in seen if step and chance.random() < 0.5]
        facts.append(updated(step, seen, chance.random() * 10 * bool(seen), elites))
    chance.shuffle(facts)
    return facts[: chance.randint(len(facts) // 2, len(facts))] if chance.random() < 0.5 else facts


@given(seed=st.integers(0, 2**32), by=st.permutations(sorted(DIMENSIONS)), count=st.integers(1, len(DIMENSIONS)))
@settings(max_examples=20, deadline=None, phases=(Phase.explicit, Phase.generate))
def test_any_grouping_adds_up_to_the_books(seed, by, count):
    """C12, C6: facts of any run, in any order, some missing, delivered twice; the running totals are those of the facts' own tables."""
    facts = generated(seed)
    with tempfile.TemporaryDirectory() as folder:
        database = kept_books(Path(folder) / "ledger.db", facts[: len(facts) // 2])
        store(database, facts)
        with database.read() as connection:
            found = books(connection, RUN, config())
            answer = bill(connection, RUN, config(), tuple(by[:count]))
            told = {(row["execution_id"], row["attempt"]): row for row in rows(connection, TOTALS, run=RUN)}
            kept = rows(connection, "SELECT * FROM costs WHERE run = :run", run=RUN)
        database.close()
    wanted = {name: found["books"][name] for name in ("turns", "tokens_sampled", "occupancy_s", "external_calls")}
    wanted |= {name: found["training"][name] for name in ("tokens_trained", "compute_s")}
    assert {name: answer["total"][name] for name in wanted} == pytest.approx(wanted)
    for row in kept:
        own = told.get((row["execution_id"], row["attempt"]), {})
        assert [row[name] or 0 for name in ("turns", "tokens", "occupancy_s")] == pytest.approx(
            [own.get(name) or 0 for name in ("turns", "tokens", "occupancy_s")]
        )


@given(seed=st.integers(0, 2**32), by=st.permutations(sorted(DIMENSIONS)), count=st.integers(1, 3))
@settings(max_examples=15, deadline=None, phases=(Phase.explicit, Phase.generate))
def test_which_groups_have_settled_changes_no_bill(seed, by, count):
    """C12, C6: settled at once, after each delivery of a few facts, or never: the same bill, and the audit finds each line in order."""
    facts = generated(seed)
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        live = kept_books(Path(folder) / "live.db", facts)
        patch.setattr(settling, "UNSETTLED_MAX", 0)
        settled = kept_books(Path(folder) / "settled.db", [])
        for start in range(0, len(facts), 7):
            store(settled, facts[start : start + 7])
        with live.read() as one, settled.read() as other:
            wanted, found = (bill(connection, RUN, config(), tuple(by[:count])) for connection in (one, other))
            assert rows(other, "SELECT * FROM unsettled") == rows(other, BILL_LINES, run=RUN) == []
            assert rows(one, "SELECT * FROM bill_lines") == []
        live.close()
        settled.close()
    assert [list(row.values()) for row in found["rows"]] == [approx(row) for row in wanted["rows"]]
    assert found["total"] == pytest.approx(wanted["total"])


def approx(row):
    return [pytest.approx(value) if isinstance(value, float | int) else value for value in row.values()]


def test_books_of_an_older_schema_are_billed_as_before_and_settle(tmp_path, monkeypatch):
    """C12: migration 0004 finds every group of the books unsettled, and the next transactions settle them."""
    database = kept_books(tmp_path / "old.db", retried())
    before = asked(database, "attempt", "model_version")
    with database.writing.begin() as connection:
        for table in (*older._TABLES, "compacted", *newest._TABLES, "refused", "spans_deleted"):
            connection.exec_driver_sql(f"DROP TABLE {table}")
        for index in (*(index for index, *_ in older._INDEXES), "batch_groups_by_group_id", "attempts_by_quota_left"):
            connection.exec_driver_sql(f"DROP INDEX {index}")
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '0003'")
    database.migrate()
    assert asked(database, "attempt", "model_version") == before
    settling.settle_all(database.writing, keep=0)
    with database.read() as connection:
        assert rows(connection, "SELECT group_id, version, attempt, retry FROM bill_lines") == [
            {"group_id": "g000000", "version": 4, "attempt": 1, "retry": 1}, {"group_id": "g000000", "version": 4, "attempt": 2, "retry": 0},
            {"group_id": "g000000", "version": 5, "attempt": 2, "retry": 0},
        ]  # fmt: skip
    assert asked(database, "attempt", "model_version") == before
    database.close()


def test_groups_that_cannot_be_settled_stop_no_start(tmp_path, monkeypatch):
    """C6: they are billed from their facts. What the database itself lacks is said."""
    database = kept_books(tmp_path / "kept.db", retried())
    before = asked(database, "attempt")
    for kept, error in (
        (True, sa.exc.DataError("", {}, sqlite3.IntegrityError("integer overflow"))),
        (True, ValueError("a row like no other")),
        (False, sa.exc.OperationalError("", {}, disk_error())),
    ):

        def fails(*_, error=error):
            raise error

        with monkeypatch.context() as patched:
            patched.setattr("services.ledger.storage.database.settle_all", fails)
            if kept:
                database.migrate()
            else:
                with pytest.raises(Unavailable, match="disk I/O error"):
                    database.migrate()
    assert asked(database, "attempt") == before
    database.close()


def disk_error() -> sqlite3.OperationalError:
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorcode = sqlite3.SQLITE_IOERR
    return error

"""What was exported comes back as an offline data set, bit by bit (D12)."""

import argparse
import random
import struct
from pathlib import Path

import msgspec
import pytest
import sqlalchemy as sa

from gyre.errors import Conflict, InvalidInput, NotFound
from services.ledger.core.costs import UNKNOWN
from services.ledger.once import exported, imported
from services.ledger.queries import audit, bill, books, drops, explain
from tests.unit.ledger.ledger_history import RUN, call, config, history, kept_books, store

pq = pytest.importorskip("pyarrow.parquet")

NAMES = ("executions", "samples", "turns", "drops")


class Asking:
    """What `exported` and `imported` read of a service's context."""

    run = RUN

    def __init__(self, folder: Path, run: str = RUN, since: float | None = None) -> None:
        self.run = run
        self.arguments = argparse.Namespace(export=folder, import_files=folder, what=[], since=since)


def odd(seed: int) -> list:
    """The small run with numbers of any bits and texts of any letters."""
    chance = random.Random(seed)
    bits = lambda: struct.unpack("d", struct.pack("Q", chance.getrandbits(62)))[0]  # noqa: E731
    facts = []
    for fact in history():
        for name in ("reward", "advantage", "version_mean", "waited_s", "occupancy_s", "queue_wait_s"):
            if isinstance(getattr(fact, name, None), float) and chance.random() < 0.5:
                fact = msgspec.structs.replace(fact, **{name: abs(bits()) % 1e9})
        if hasattr(fact, "detail") and isinstance(fact.detail, str):
            fact = msgspec.structs.replace(fact, detail="<b>ä\u202e\n\t\U0001f600 '; --")
        facts.append(fact)
    return facts


@pytest.fixture
def empty(tmp_path):
    made = []

    def build(name: str):
        made.append(kept_books(tmp_path / f"{name}.db", []))
        return made[-1]

    yield build
    for database in made:
        database.close()


@pytest.mark.parametrize("seed", range(4))
def test_exported_again_the_files_are_the_same_to_the_bit(books_of, empty, tmp_path, seed):
    """Every column of every row, numbers by their bits; what has not been told is still not told."""
    exported(books_of(odd(seed)), Asking(tmp_path / "first"))
    again = empty("again")
    told = imported(again, Asking(tmp_path / "first"))
    exported(again, Asking(tmp_path / "second"))
    for name in NAMES:
        first, second = (pq.read_table(tmp_path / folder / f"{name}.parquet") for folder in ("first", "second"))
        assert first.equals(second, check_metadata=True), name
        assert told[name]["rows"] == first.num_rows > 0


def test_what_is_imported_answers_as_the_run_did(whole, empty, tmp_path):
    """Books, bill, drops and a sample's page: all of it that is in the files, by every version that sampled."""
    exported(whole, Asking(tmp_path / "out"))
    offline = empty("offline")
    imported(offline, Asking(tmp_path / "out"))
    with whole.read() as one, offline.read() as other:
        was, now = (books(connection, RUN, config()) for connection in (one, other))
        assert now["books"] == was["books"]
        # an execution that was never leased is in no file
        assert {name: now["executions"][name] for name in ("trained", "dropped", "dropped_by_reason")} == {
            name: was["executions"][name] for name in ("trained", "dropped", "dropped_by_reason")
        }
        by = ("tenant", "model_version", "attempt")
        assert bill(other, RUN, config(), by)["rows"] == bill(one, RUN, config(), by)["rows"]
        assert drops(other, RUN, config())["reasons"] == drops(one, RUN, config())["reasons"]
        pages = [explain(connection, RUN, "g000001-e1-a2") for connection in (one, other)]
        assert (
            pages[0]["call_list"] == pages[1]["call_list"]
            or [{**row, "set_aside": None} for row in pages[0]["call_list"]] == pages[1]["call_list"]
        )
        wrong = [one for one in audit(other, RUN, config()) if not one.passed and one.name.startswith("balance_")]
        assert wrong == []


def test_only_empty_books_take_an_import(whole, empty, tmp_path):
    """Data of two runs never get mixed up, and nothing of a run is overwritten."""
    exported(whole, Asking(tmp_path / "out"))
    with pytest.raises(Conflict, match="hold something already"):
        imported(whole, Asking(tmp_path / "out"))
    with pytest.raises(InvalidInput, match="is of run t"):
        imported(empty("other"), Asking(tmp_path / "out", run="other"))


def test_what_is_no_export_is_refused_by_name_and_leaves_nothing(whole, empty, tmp_path):
    """Style: what, where, and what would be right. A file that is broken takes the others with it."""
    import pyarrow as pa

    with pytest.raises(NotFound, match=r"has none of executions\.parquet, .*`gyre export DIR` writes them"):
        imported(empty("a"), Asking(tmp_path))
    (tmp_path / "drops.parquet").write_bytes(b"no parquet")
    with pytest.raises(InvalidInput, match=r"drops\.parquet is no Parquet file"):
        imported(empty("b"), Asking(tmp_path))
    pq.write_table(pa.table({"a": [1]}), tmp_path / "drops.parquet")
    with pytest.raises(InvalidInput, match="was not written by `gyre export`"):
        imported(empty("c"), Asking(tmp_path))
    out = tmp_path / "out"
    exported(whole, Asking(out))
    table = pq.read_table(out / "drops.parquet")
    pq.write_table(table.drop_columns(["reason"]), out / "drops.parquet")
    database = empty("d")
    with pytest.raises(InvalidInput, match=r"drops\.parquet has no column reason"):
        imported(database, Asking(out))
    with database.read() as connection:
        assert connection.scalar(sa.text("SELECT count(*) FROM attempts")) == 0, "all or nothing"


def test_numbers_that_cannot_be_are_nobodys_tokens(whole, empty, tmp_path):
    """A file that somebody has changed: a mean that is no number, or not between its bounds, says nothing of versions."""
    import pyarrow as pa

    out = tmp_path / "out"
    exported(whole, Asking(out))
    turns = pq.read_table(out / "turns.parquet")
    means = pa.array([float("nan"), 1e300, *turns["version_mean"].to_pylist()[2:]], pa.float64())
    place = turns.column_names.index("version_mean")
    pq.write_table(turns.set_column(place, turns.schema.field(place), means), out / "turns.parquet")
    database = empty("offline")
    imported(database, Asking(out))
    with database.read() as connection:
        assert connection.scalar(sa.text(f"SELECT sum(tokens) FROM usage WHERE version = {UNKNOWN}")) == 6


def test_a_moment_that_is_none_exports_nothing(whole, tmp_path):
    """Nanoseconds, and what is no number: an empty file would look like an empty run."""
    for since in (1.7e18, float("nan")):
        with pytest.raises(InvalidInput, match=r"--since .* is no moment in Unix seconds"):
            exported(whole, Asking(tmp_path / "out", since=since))


def test_a_call_of_two_versions_is_shared_as_it_was(books_of, empty, tmp_path):
    """C7, C12: the mean of three tokens' versions says that one of them was the newer weights'."""
    facts = [*history(), call(0, 0, 5, version=4)]
    database = books_of([])
    store(database, facts)
    exported(database, Asking(tmp_path / "out"))
    offline = empty("offline")
    imported(offline, Asking(tmp_path / "out"))
    query = "SELECT execution_id, attempt, version, tokens, round(turns, 9) FROM usage ORDER BY execution_id, attempt, version"
    with database.read() as one, offline.read() as other:
        assert [tuple(row) for row in one.execute(sa.text(query))] == [
            tuple(row) for row in other.execute(sa.text(query))
        ]

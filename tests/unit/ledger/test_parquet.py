"""What is exported is what the books hold: executions, samples, turns, drops (C12, C13)."""

import argparse
import sys
from pathlib import Path

import pytest

from gyre.cli.export import unix_seconds
from gyre.errors import ConfigError, InvalidInput
from services.ledger.once import exported
from services.ledger.queries import books
from tests.unit.ledger.ledger_history import RUN, config, history, store

pq = pytest.importorskip("pyarrow.parquet")


class Asking:
    """What `exported` reads of a service's context."""

    run = RUN

    def __init__(self, folder: Path, what=(), since=None) -> None:
        self.arguments = argparse.Namespace(export=folder, what=list(what), since=since)


def test_every_row_of_the_books_is_exported_with_its_task_and_cost(whole, tmp_path):
    """C12, C13: another run in the same database stays out; turns, tokens and occupancy add up to the books."""
    store(whole, history()[:40], run="other")
    answer = exported(whole, Asking(tmp_path / "out"))
    with whole.read() as connection:
        kept = books(connection, RUN, config())["books"]
    tables = {name: pq.read_table(about["path"]) for name, about in answer.items()}
    assert {name: table.num_rows for name, table in tables.items()} == {
        "executions": 11,
        "samples": 7,
        "turns": 16,
        "drops": 5,
    }
    assert [answer[name]["rows"] for name in tables] == [table.num_rows for table in tables.values()]
    assert set(tables["executions"]["run"].to_pylist()) == {RUN}
    assert sum(tables["turns"]["output_tokens"].to_pylist()) == kept["tokens_sampled"]
    assert sum(n or 0 for n in tables["executions"]["tokens"].to_pylist()) == kept["tokens_sampled"]
    assert sum(n or 0 for n in tables["executions"]["occupancy_s"].to_pylist()) == kept["occupancy_s"]
    trained = {row["sample_id"]: row for row in tables["samples"].to_pylist()}["g000001-e1-a2"]
    assert (trained["step"], trained["task_id"], trained["success"], trained["reward"]) == (1, "task-1", False, 0.0)
    assert tables["turns"].schema.metadata[b"gyre.run"] == RUN.encode()
    assert b"newest" in tables["turns"].schema.field("version_max").metadata[b"comment"]


def test_only_what_is_asked_for_since_when_it_is_asked_for(whole, tmp_path):
    """The history's calls are at 5 s and 6 s, each execution's second being the later one."""
    answer = exported(whole, Asking(tmp_path / "out", ["turns"], since=6.0))
    assert list(answer) == ["turns"] and answer["turns"]["rows"] == 8
    assert [file.name for file in (tmp_path / "out").iterdir()] == ["turns.parquet"]


def test_more_rows_than_fit_at_once_come_in_several_row_groups(whole, tmp_path, monkeypatch):
    """Memory is bounded by the rows read together: 16 turns by 5 make 4 row groups, in the order of their keys."""
    from services.ledger import parquet

    monkeypatch.setattr(parquet, "ROWS_AT_ONCE", 5)
    file = pq.ParquetFile(exported(whole, Asking(tmp_path, ["turns"]))["turns"]["path"])
    assert file.num_row_groups == 4
    names = file.read()["call_id"].to_pylist()
    assert names == sorted(names) and len(names) == 16


def test_an_empty_ledger_makes_files_with_columns_and_no_rows(books_of, tmp_path):
    """A reader of several runs needs no special case."""
    answer = exported(books_of([]), Asking(tmp_path))
    assert all(about["rows"] == 0 for about in answer.values())
    assert "sample_id" in pq.read_table(answer["drops"]["path"]).column_names


def test_what_cannot_be_exported_is_said(whole, tmp_path, monkeypatch):
    """Style: user errors read well."""
    with pytest.raises(InvalidInput, match="no data tokens: any of executions, samples, turns, drops"):
        exported(whole, Asking(tmp_path, ["tokens"]))
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.delitem(sys.modules, "services.ledger.parquet")
    monkeypatch.delattr("services.ledger.parquet", raising=False)
    with pytest.raises(ConfigError, match=r"needs pyarrow, which is not installed: pip install 'gyre-rl\[export\]'"):
        exported(whole, Asking(tmp_path))


def test_a_moment_is_written_by_people_or_by_programs():
    """With an offset it is the same everywhere: 1,800,000,000 s is 2027-01-15 08:00 UTC."""
    assert unix_seconds("1800000000") == unix_seconds("2027-01-15T08:00+00:00") == 1.8e9

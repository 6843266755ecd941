"""`gyre export` and `gyre import` by their commands: out of a run, into a folder that every command takes (D12)."""

import json

import pytest

from gyre.config import load
from tests.integration.ledger.command import gyre

pytest.importorskip("pyarrow")


def test_a_run_goes_out_and_comes_back_as_one_that_is_over(run, tmp_path):
    out, offline = tmp_path / "out", tmp_path / "offline"
    told = json.loads(gyre("export", out, "--run", run.root, "--json"))
    assert {name: about["rows"] for name, about in told.items()} == {
        "executions": 11,
        "samples": 7,
        "turns": 16,
        "drops": 5,
    }
    (out / "demonstrations.jsonl").write_text('{"ids": [1, 2], "targets": [0, 1]}\n')
    back = json.loads(gyre("import", out, offline, "--json"))
    assert back["run"] == str(offline) and back["turns"]["rows"] == 16
    was, now = (json.loads(gyre("books", "--run", folder, "--json")) for folder in (run.root, offline))
    assert now["books"] == was["books"]
    assert json.loads(gyre("explain", "g000001-e1-a2", "--run", offline, "--json"))["state"] == "trained"
    assert (offline / "demonstrations.jsonl").read_text() == (out / "demonstrations.jsonl").read_text()
    assert "is not empty" in gyre("import", out, offline, code=1)
    again = tmp_path / "again"
    (out / "turns.parquet").write_bytes(b"cut off")
    assert "turns.parquet is no Parquet file" in gyre("import", out, again, code=2)
    assert not again.exists(), "nothing half made is left"


def test_a_database_password_does_not_travel_with_the_data(run, tmp_path):
    """The address of the books is of the run's machine."""
    run.config_file.write_text(
        run.config_file.read_text().replace('database = ""', f'database = "sqlite:///{run.database}"')
    )
    assert load(run.config_file).ledger.database
    gyre("export", tmp_path / "out", "--run", run.root, "--what", "drops")
    assert load(tmp_path / "out" / "config.toml").ledger.database == ""


def test_what_no_export_wrote_is_refused(tmp_path):
    (tmp_path / "data").mkdir()
    assert "has no config.toml: `gyre export" in gyre("import", tmp_path / "data", tmp_path / "offline", code=2)
    assert not (tmp_path / "offline").exists()

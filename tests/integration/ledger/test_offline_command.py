"""`gyre export` and `gyre import` by their commands: out of a run, into a folder that every command takes (D12)."""

import json
import shlex
import shutil
from importlib import import_module

import pytest
from click.testing import CliRunner

from gyre.cli.import_ import import_
from gyre.cli.options import find_run
from gyre.config import load
from gyre.run_folder import RunFolder
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
    words = gyre("import", out, tmp_path / "said").splitlines()
    shutil.rmtree(tmp_path / "said")
    assert [shlex.split(line)[-3:] for line in words[-2:]] == [
        [name, "--run", str(tmp_path / "said")] for name in ("books", "explorer")
    ]
    back = json.loads(gyre("import", out, offline, "--json"))
    assert back["run"] == str(offline) and back["turns"]["rows"] == 16
    was, now = (json.loads(gyre("books", "--run", folder, "--json")) for folder in (run.root, offline))
    assert now["books"] == was["books"]
    assert json.loads(gyre("explain", "g000001-e1-a2", "--run", offline, "--json"))["state"] == "trained"
    assert (offline / "demonstrations.jsonl").read_text() == (out / "demonstrations.jsonl").read_text()
    assert "is not empty" in gyre("import", out, offline, code=2)
    again = tmp_path / "again"
    (out / "turns.parquet").write_bytes(b"cut off")
    assert "turns.parquet is no Parquet file" in gyre("import", out, again, code=2)
    assert {file.name for file in tmp_path.iterdir()} == {"run", "out", "offline"}, "nothing half made is left"


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


def test_half_an_import_is_no_run(run, tmp_path, monkeypatch):
    """Killed in the middle it would look like a run in which nothing happened; the next import begins anew."""
    out, offline = tmp_path / "out", tmp_path / "offline"
    gyre("export", out, "--run", run.root, "--what", "drops")

    def killed(part: RunFolder, *_: str) -> None:
        assert part.config_file.exists() and not offline.exists()
        shutil.copytree(part.root, tmp_path / "kept")
        raise KeyboardInterrupt

    monkeypatch.setattr(import_module("gyre.cli.import_"), "run_ledger", killed)
    assert CliRunner().invoke(import_, [str(out), str(offline)]).exit_code
    (tmp_path / "kept").rename(tmp_path / ".offline.part")
    gyre("import", out, offline)
    assert {file.name for file in tmp_path.iterdir()} == {"run", "out", "offline"}


@pytest.mark.parametrize("what", ["drops", "demonstrations"])
def test_an_export_writes_over_nothing_of_somebody_else(run, tmp_path, what):
    """A project's own config.toml, and other runs: `gyre export runs/other` gave that run another's name and books."""
    other, project = RunFolder(tmp_path / "other"), tmp_path / "project"
    other.make()
    project.mkdir()
    (project / "config.toml").write_text("# mine\n")
    assert "is the folder of a run, as it has keys" in gyre(
        "export", other.root, "--run", run.root, "--what", what, code=2
    )
    assert "a configuration of your own" in gyre("export", project, "--run", run.root, "--what", what, code=2)
    assert [file.name for file in project.iterdir()] == ["config.toml"]
    assert (project / "config.toml").read_text() == "# mine\n" and not other.config_file.exists()


def test_what_was_exported_is_no_run_and_not_the_newest(run, tmp_path, monkeypatch):
    """Asked as a run it was given empty books."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    run.root.rename(tmp_path / "runs" / "one")
    gyre("export", tmp_path / "runs" / "data", "--run", tmp_path / "runs" / "one", "--what", "drops")
    assert find_run(None).root == tmp_path / "runs" / "one"
    shutil.rmtree(tmp_path / "runs" / "one" / "keys")
    assert find_run(None).root == tmp_path / "runs" / "one", "a copy for others, without its keys"
    assert "`gyre import` makes one of" in gyre("books", "--run", tmp_path / "runs" / "data", code=2)

"""The `gyre` command: help, errors, exit codes, overrides."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from gyre.cli.main import COMMANDS, exit_code, gyre
from gyre.cli.options import apply_override, find_run, load_config, new_run_folder, typed
from gyre.cli.train import NEXT, what_next
from gyre.cli.training.model import check_model
from gyre.cli.training.tasks import heldout, load_source, training
from gyre.config.load import parse
from gyre.errors import ConfigError, Conflict, InvariantBroken, NotFound

CONFIG = '[model]\npath = "m"\n[tasks]\nsource = "examples.gymnasium_env.environment:tasks"\n'


def gyre_process(*arguments: str, cwd: Path) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-m", "gyre.cli.main", *arguments], capture_output=True, text=True, cwd=cwd, timeout=240
    )


@pytest.mark.parametrize("name", [*COMMANDS])
def test_every_command_explains_itself(name):
    result = CliRunner().invoke(gyre, [name, "--help"])
    assert result.exit_code == 0 and "Usage" in result.output and len(result.output.splitlines()) > 5


def test_the_command_starts_without_anything_heavy():
    """`gyre --help` and a configuration check import neither torch nor gRPC nor the services."""
    code = (
        "import sys; from click.testing import CliRunner; from gyre.cli.main import gyre; CliRunner().invoke(gyre, ['--help']);"
        "CliRunner().invoke(gyre, ['config', 'show']);"
        "print([m for m in sys.modules if m.split('.')[0] in ('torch', 'grpc', 'services', 'transformers', 'nats')])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"


def test_an_unknown_setting_is_a_user_error_with_the_nearest_name(tmp_path):
    """Bad input: exit code 2, and nothing was made."""
    (tmp_path / "bad.toml").write_text(CONFIG + "[trainer]\nlearning_rat = 1\n[scheduler]\n")
    (tmp_path / "near.toml").write_text(CONFIG + "[scheduler]\ngroup_per_step = 8\n")
    for file, hint in (
        ("bad.toml", "known here: objective, lr"),
        ("near.toml", "did you mean `scheduler.groups_per_step`?"),
    ):
        for command in (["config", "check"], ["train"], ["up"]):
            result = gyre_process(*command, file, cwd=tmp_path)
            assert result.returncode == 2 and hint in result.stderr and "Traceback" not in result.stderr
    assert not (tmp_path / "runs").exists()


def test_a_good_configuration_is_fine_and_its_fingerprint_follows_the_settings(tmp_path):
    """C7"""
    file = tmp_path / "c.toml"
    file.write_text(CONFIG)
    answers = [
        json.loads(CliRunner().invoke(gyre, ["config", "check", str(file), "--json", *more]).output)
        for more in ([], ["--set", "trainer.lr=0.5"])
    ]
    assert answers[0]["ok"] and answers[0]["fingerprint"] != answers[1]["fingerprint"]


def test_a_model_directory_without_tokenizer_is_named_before_anything_starts(tmp_path):
    """Bad input: weights and config are there, the tokenizer is not."""
    model = tmp_path / "m"
    model.mkdir()
    (model / "config.json").write_text("{}")
    (model / "model.safetensors").write_bytes(b"")
    (tmp_path / "c.toml").write_text(CONFIG)
    result = subprocess.run(
        [sys.executable, "-m", "gyre.cli.main", "train", "c.toml", "--set", "tasks.source=source:tasks"],
        capture_output=True, text=True, cwd=_with_source(tmp_path), timeout=240,
    )  # fmt: skip
    assert result.returncode == 2 and "has no tokenizer" in result.stderr and "Traceback" not in result.stderr
    with pytest.raises(ConfigError, match="no directory"):
        check_model(tmp_path / "absent")


def _with_source(folder: Path) -> Path:
    (folder / "source.py").write_text(
        "from gyre.env import Task\n\n\ndef tasks(split, count, seed):\n    yield Task(task_id=split, task_type='t', seed=seed)\n"
    )
    return folder


def test_overrides_are_toml_values_and_fall_back_to_text(tmp_path):
    data: dict = {}
    for override in ("trainer.lr=1e-4", "run.name=try", "rollout.slots = 3", 'model.recipe=["a", "b"]'):
        apply_override(data, override)
    assert data == {
        "trainer": {"lr": 1e-4},
        "run": {"name": "try"},
        "rollout": {"slots": 3},
        "model": {"recipe": ["a", "b"]},
    }
    for wrong in ("trainer.lr", "=3", "trainer..lr=3"):
        with pytest.raises(ConfigError):
            apply_override({}, wrong)
    (tmp_path / "c.toml").write_text(CONFIG)
    assert load_config(tmp_path / "c.toml", ("run.steps=7",)).run.steps == 7


def test_the_newest_run_is_meant_where_none_is_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(NotFound, match="gyre train"):
        find_run(None)
    config = parse({"model": {"path": "m"}, "run": {"name": "x"}}, "test")
    folders = [new_run_folder(config, None) for _ in range(2)]
    assert folders[0].root == folders[1].root  # not made yet
    folders[0].make()
    assert new_run_folder(config, None).root != folders[0].root
    (tmp_path / "config.toml").write_text(CONFIG)
    with pytest.raises(Conflict, match="a configuration of your own"):
        new_run_folder(config, tmp_path)


def test_a_command_is_named_so_that_it_can_be_typed(tmp_path, monkeypatch):
    """`make train` ended with names that no shell found: the command is in .venv."""
    own = Path(sys.executable).parent
    monkeypatch.chdir(own.parent)
    monkeypatch.setenv("PATH", "/nowhere")
    assert typed("audit", root=own.parent / "a run") == f"{own.name}/gyre audit --run 'a run'"
    assert typed("audit", root=tmp_path).endswith(f" --run {tmp_path}")
    monkeypatch.setenv("PATH", str(own))
    lines = what_next(tmp_path / "r")
    assert len(lines) == len(NEXT) + 1
    for line, name in zip(lines[1:], NEXT, strict=True):
        assert line.split()[:4] == ["gyre", name, "--run", str(tmp_path / "r")] and name in COMMANDS


def test_user_errors_and_defects_have_different_exit_codes():
    assert (exit_code(ConfigError("x")), exit_code(Conflict("x")), exit_code(InvariantBroken("x"))) == (2, 2, 1)


def test_tasks_carry_the_configured_limits_and_ids_that_never_repeat():
    """Evaluations ask for the same tasks before and after, under ids of their own; training ids do not repeat over epochs."""
    config = parse({"model": {"path": "m"}, "tasks": {"source": "examples.gymnasium_env.environment:tasks"}}, "test")
    source = load_source(config)
    before, after = heldout(source, config, "before"), heldout(source, config, "after")
    assert [t.seed for t in before] == [t.seed for t in after] and len(before) == config.evaluation.tasks
    assert not {t.task_id for t in before} & {t.task_id for t in after}
    train = training(source, config)
    ids = [next(train).task_id for _ in range(5000)]
    assert len(set(ids)) == 5000
    assert before[0].limits.turns_max == config.tasks.turns_max and before[0].group_size == 1


def test_a_source_that_cannot_be_loaded_is_a_user_error():
    for name in ("nothing", "no.such.module:tasks", "json:no_such_function"):
        with pytest.raises(ConfigError):
            load_source(parse({"model": {"path": "m"}, "tasks": {"source": name}}, "test"))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["trian"], "did you mean `gyre train`?"),
        (["explian", "g1"], "did you mean `gyre explain`?"),
        (["zzz"], "`gyre --help` lists them"),
        (["executions", "suspnd", "g000001-e0"], "did you mean `gyre executions suspend`?"),
        (["config", "chek", "c.toml"], "did you mean `gyre config check`?"),
        (["audit", "--jsn"], "--json"),
    ],
)
def test_a_slip_of_the_pen_is_answered_with_what_was_meant(words, said):
    result = CliRunner().invoke(gyre, words, prog_name="gyre")
    assert result.exit_code == 2 and said in result.output

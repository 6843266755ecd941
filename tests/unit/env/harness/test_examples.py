"""The examples with an agent of ours in the harness's place (B4)."""

import shlex
from pathlib import Path

import msgspec
import pytest

from examples.harness.environment import Mend
from examples.repair.packages import TEST_FILE, make_package
from gyre.env import Task
from gyre.env.harness import Bounds, HarnessEnvironment
from gyre.env.harness.settings import load
from gyre.errors import ConfigError
from tests.support import ROOT
from tests.unit.env.harness.test_harness_environment import AGENT, TASK, drive, say

PACKAGE = make_package(TASK.seed)
MEND = f"do printf %s {shlex.quote(PACKAGE.solution)} > {PACKAGE.fault_path}"
EXIT = "echo 'import os; os._exit(0)'"
SHADOW = f"do {EXIT} | tee unittest.py sitecustomize.py"


@pytest.mark.parametrize(
    ("acts", "outcome"),
    [
        ((MEND,), 1.0),
        ((), 0.0),
        ((f"do echo > {TEST_FILE}",), 0.0),
        ((f"do ln -sf /dev/null {TEST_FILE}", MEND), 1.0),
        ((SHADOW,), 0.0),
        ((f"do {EXIT} > {PACKAGE.fault_path}",), 0.0),
    ],
    ids=["mended", "left", "tests-emptied", "mended-and-tests-gone", "unittest-shadowed", "exits-with-0"],
)
async def test_a_package_is_mended_when_its_own_tests_pass(acts, outcome):
    """The tests are those it was given with, whatever the agent made of its copy."""
    _, environment, _ = await drive(say(*acts, "Done."), Mend, program=AGENT)
    assert (await environment.score()).outcome == outcome
    environment.close()


async def test_the_example_without_code_says_what_is_right():
    kind = load(ROOT / "examples" / "harness" / "mend.toml")
    assert (kind.harness, kind.name) == ("claude-code", "mend-calc")
    mended = "do sed -i s/100.+/100\\ -/ calc.py"
    for act, outcome in ((mended, 1.0), ("do rm -r tests", 0.0), (SHADOW, 0.0), (f"do {EXIT} > calc.py", 0.0)):
        over, environment, _ = await drive(say(act, "Done."), kind, program=AGENT)
        assert over.reason == "stopped"
        assert (await environment.score()).outcome == outcome
        environment.close()


def test_a_table_of_bounds_changes_what_it_names_and_nothing_else(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(HarnessEnvironment, "bounds", Bounds(processes=7))
    file = tmp_path / "mine.toml"
    file.write_text(
        'name = "a"\nharness = "codex"\nprompt = "p"\ncheck = ["true"]\n[bounds]\ncpu_s = 9\n[check_bounds]\nmemory_bytes = 5\n'
    )
    kind = load(file)
    assert kind.bounds == Bounds(cpu_s=9.0, processes=7)
    assert kind.check_bounds == msgspec.structs.replace(HarnessEnvironment.check_bounds, memory_bytes=5)
    assert kind.check_bounds.wall_s == 60.0, "so that a check which does not end is cut off"
    file.write_text(file.read_text() + "cpu = 1\n")
    with pytest.raises(ConfigError, match="check_bounds"):
        load(file)


def test_its_agent_sees_the_package_and_its_tests(tmp_path: Path):
    environment = type("Seen", (Mend,), {"program": AGENT})(Task(task_id="t", task_type="t", seed=TASK.seed))
    assert "leave the tests as they are" in environment.reset()[0]["content"]
    assert {file.name for file in environment.sandbox.work.iterdir()} == set(PACKAGE.files)
    environment.close()


def test_a_file_that_does_not_say_what_success_is_is_refused(tmp_path: Path):
    file = tmp_path / "mine.toml"
    file.write_text('name = "a"\nharness = "codex"\nprompt = "p"\n')
    with pytest.raises(ConfigError, match="what success is"):
        load(file)

"""A whole execution whose harness, and whose hidden tests, run in containers (C2-C4, B4). Run by `make test-podman`."""

import sys
from pathlib import Path

import msgspec
import pytest

from gyre.env import Task
from gyre.env.driving import Access
from gyre.env.ends import Limits
from gyre.env.harness import HarnessEnvironment
from gyre.env.harness.settings import load
from gyre.env.wall import WallClock
from tests.integration.env.conftest import IMAGE
from tests.unit.env.doubles import ChatDouble

pytestmark = pytest.mark.podman
PYTHON = str(Path(sys.executable).resolve())
AGENT = Path(__file__).parents[2] / "unit/env/harness/agent.py"
WALL_S = 300.0
FILE = """
name = "write"
prompt = "Write calc.py."
hidden = "hidden"
stall_s = {stall_s}

[program]
command = {command}
environment = {{ MODEL_URL = "{{api}}", MODEL_KEY = "{{key}}" }}
files = {{ "{{home}}/.agent/settings" = "{{model}}" }}

[podman]
image = "{image}"
podman = {podman}
mounts = {mounts}
python = "{python}"
"""
TESTS = "import unittest, calc\n\nclass Sum(unittest.TestCase):\n    def test_it(self):\n        self.assertEqual(calc.add(2, 3), 5)\n"


@pytest.fixture
def described(podman, listed, python_mounts, tmp_path):
    """The environment of a file, by what it says."""
    (tmp_path / "hidden").mkdir()
    (tmp_path / "hidden/test_calc.py").write_text(TESTS)
    made: list[HarnessEnvironment] = []

    def of(command: list[str], stall_s: float = 600.0) -> HarnessEnvironment:
        mounts = python_mounts | {str(AGENT): str(AGENT)}
        table = "{ " + ", ".join(f'"{here}" = "{there}"' for here, there in mounts.items()) + " }"
        said = {
            "command": command,
            "image": IMAGE,
            "podman": podman,
            "mounts": table,
            "python": PYTHON,
            "stall_s": stall_s,
        }
        (tmp_path / "write.toml").write_text(FILE.format(**said))
        made.append(load(tmp_path / "write.toml")(Task(task_id="t", task_type="t", seed=3)))
        return made[-1]

    yield of
    for one in made:
        one.close()


async def drive(environment: HarnessEnvironment, *texts: str):
    environment.reset()
    wall = WallClock()
    wall.start(WALL_S)
    limits = Limits(wall_s=WALL_S, turns_max=9, observation_bytes_max=1000, context_tokens_max=5000)
    async with ChatDouble(lambda _body, n: {"role": "assistant", "content": texts[n - 1]}) as model:
        return await environment.drive(Access(lambda: model.base, "attempts-key"), limits, wall)


async def test_an_agent_in_a_container_asks_its_model_and_is_judged_in_another(described):
    environment = described([PYTHON, str(AGENT), "{prompt}"])
    write = "do echo 'def add(a, b): return a + b' > calc.py; cat ~/.agent/settings"
    over = await drive(environment, write, "Done.")
    assert (over.ending, over.reason) == ("completed", "stopped"), over.detail
    assert "policy" in environment.exit.tail and "said: Done." in environment.exit.tail
    score = await environment.score()
    assert score.outcome == 1.0, score.evidence
    evidence = environment.evidence()
    assert evidence.tool_versions == {PYTHON.rpartition("/")[2]: IMAGE}
    other = msgspec.structs.replace(environment._program, command=["other"])
    environment._program = other
    assert environment.evidence().image_digest != evidence.image_digest


async def test_wrong_work_and_work_that_would_end_the_judge_fail_in_the_container(described):
    environment = described([PYTHON, str(AGENT), "{prompt}"])
    over = await drive(environment, "do echo 'import os; os._exit(0)' > calc.py", "Done.")
    assert over.reason == "stopped", over.detail
    assert (await environment.score()).outcome == 0.0


async def test_an_agent_in_a_container_that_does_nothing_has_stalled(described):
    over = await drive(described(["sleep", "120"], stall_s=0.5))
    assert (over.ending, over.reason) == ("timed_out", "stalled")


async def test_an_agent_that_is_not_in_the_image_fails_its_execution(described):
    over = await drive(described(["nosuch"]))
    assert (over.ending, over.reason) == ("failed", "environment_error")
    assert "no program `nosuch` in the image" in over.detail

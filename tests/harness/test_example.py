"""examples/harness as its own process, which is killed in the middle of a call (B4)."""

import contextlib
import shlex

import psutil
import pytest

from examples.harness.environment import NAME, PROMPT
from examples.repair.packages import make_package
from tests.harness.jobs import tool
from tests.harness.scripted import HOLD
from tests.harness.stack import Stack

pytestmark = pytest.mark.timeout(600)

PACKAGE = make_package(1)
MEND = tool("bash", command=f"printf %s {shlex.quote(PACKAGE.solution)} > {PACKAGE.fault_path}; python3 -m unittest -q")
SUBMIT = tool("bash", command="echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT")
SCRIPT = [{"when": "Ran [0-9]+ tests", "say": [SUBMIT]}, {"when": PROMPT.split("(")[0], "say": [HOLD + MEND, MEND]}]


def is_alive(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.status() != psutil.STATUS_ZOMBIE
    return False


async def test_the_environments_process_is_killed_and_its_next_attempt_mends_the_package(
    programs, model_dir, tmp_path, monkeypatch
):
    """kill -9 while the harness waits for its model: nothing of the first attempt is left running, and another process does it all anew."""
    monkeypatch.setenv("PATH", programs)
    async with Stack(tmp_path, model_dir, SCRIPT, None) as stack:
        address = ("--address", stack.test.folder.endpoint("rollout"), "--key", stack.test.environment_key)
        process = await stack.test.start("examples.harness.environment", *address)
        name = await stack.dispatch(environment=NAME)
        await stack.held(1)
        of_first = psutil.Process(process.pid).children(recursive=True)
        assert any("mini" in " ".join(child.cmdline()) for child in of_first)
        process.kill()
        await process.wait()
        await stack.test.until(lambda: not any(map(is_alive, of_first)))
        await stack.test.start("examples.harness.environment", *address)
        ended = await stack.ended(name)
        assert (ended.attempt, ended.ending, ended.reason) == (2, "completed", "stopped")
        assert ended.evaluation.outcome == 1.0, ended.evaluation.evidence
        assert {record.role for record in stack.records(name)} == {"main"}

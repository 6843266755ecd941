"""Real harnesses, unmodified, at work in their sandbox, through the gateway, on a scripted model (B1, B2, B5).

`make test-harness` installs them and runs these. Everything is real but the model: its outputs are given (scripted.py). Tools, files, sub-agents,
titles and compactions are the harnesses' own.
"""

from pathlib import Path

import pytest

from gyre.env import Score
from gyre.env.harness import Exit, HarnessEnvironment
from gyre.records import ExecutionResumed, ExecutionSuspended, array
from tests.harness.checks import check_bit_exact, check_path, records_of, shape
from tests.harness.jobs import JOBS, TASK
from tests.harness.scripted import HOLD
from tests.harness.stack import Stack

pytestmark = pytest.mark.timeout(600)


class Hello(HarnessEnvironment):
    """hello.txt is to be written; what says so is the file."""

    name = "harness"

    def prepare(self, workspace: Path) -> str:
        (workspace / "notes.md").write_text("Greetings live in hello.txt.\n")
        return TASK

    def evaluate(self, workspace: Path, ended: Exit) -> Score:
        file = workspace / "hello.txt"
        return Score(outcome=float(file.exists() and file.read_text() == "hello\n"))


def environment(harness: str, programs: str, is_relayed: bool = False) -> type[HarnessEnvironment]:
    made = {"harness": harness, "path": programs, "is_relayed": is_relayed}
    return type("HelloBy", (Hello,), made)


def check_job(stack: Stack, ended, harness: str) -> list:
    """The file is written, every call has its role, each agent's path is unbroken, everything is on record as it was."""
    world, job = stack.worlds[-1], JOBS[harness]
    said = world.exit and world.exit.tail[-3000:]
    assert (ended.ending, ended.reason) == ("completed", "stopped"), (ended, said)
    assert ended.evaluation.valid and ended.evaluation.outcome == 1.0, said
    records = records_of(stack, ended.execution_id)
    assert {record.role for record in records} - {"side"} == {"main"} | ({"sub-agent"} if job.sub_agent else set())
    assert sum(record.role == "side" for record in records) >= job.side_calls_min
    assert len(check_path(records, "main")) == len(job.main)
    assert len(check_path(records, "sub-agent")) == len(job.sub_agent)
    assert ended.turns == len(records)
    check_bit_exact(stack, ended.execution_id)
    return records


@pytest.fixture(scope="module")
def undisturbed() -> dict[str, list]:
    """Shapes of the trees of runs in which nothing happened, by harness."""
    return {}


async def run_plainly(harness, programs, model_dir, folder, undisturbed) -> None:
    folder.mkdir()
    async with Stack(folder, model_dir, JOBS[harness].script(), environment(harness, programs)) as stack:
        records = check_job(stack, await stack.run(), harness)
    undisturbed[harness] = shape(records)


@pytest.mark.parametrize("harness", list(JOBS))
async def test_a_harness_does_its_job_and_everything_is_on_record(harness, programs, model_dir, tmp_path, undisturbed):
    """Straight at the gateway, as a user points it there. Its file is written; each call has its role and none is unknown; the main agent's path is
    unbroken and without the side calls; the tree flattened is what the engine saw and said, bit by bit."""
    await run_plainly(harness, programs, model_dir, tmp_path / "run", undisturbed)


@pytest.mark.parametrize("is_relayed", [False, True], ids=["direct", "relayed"])
@pytest.mark.parametrize("harness", list(JOBS))
async def test_a_harness_notices_no_role_change_no_new_weights_and_no_death_of_the_gateway(
    harness, is_relayed, programs, model_dir, tmp_path, undisturbed
):
    """A6, B1, C7: in the middle of its first call the cell is taken for training and the call moves; in the second new weights come in flight; in the
    third the gateway is killed with -9. It finishes, the tree is that of a run in which nothing happened, and each token has its version."""
    if harness not in undisturbed:
        await run_plainly(harness, programs, model_dir, tmp_path / "plain", undisturbed)
    (folder := tmp_path / "run").mkdir()
    script = JOBS[harness].script(JOBS[harness].held())
    async with Stack(folder, model_dir, script, environment(harness, programs, is_relayed)) as stack:
        name = await stack.dispatch()
        first = await stack.held(1)
        drained = await stack.to_training(first["cell"])
        assert drained.moved_calls >= 1
        await stack.held(2)
        await stack.publish_weights(1)
        await stack.held(3)
        await stack.kill_gateway()
        records = check_job(stack, await stack.ended(name), harness)
    assert shape(records) == undisturbed[harness]
    moved, updated, asked_again = [record for record in records if record.role == "main"][:3]
    assert moved.cells == [first["cell"], "cell-1" if first["cell"] == "cell-0" else "cell-0"]
    assert set(array(moved.versions, "int32")) == {0}
    assert sorted(set(array(updated.versions, "int32"))) == [0, 1]
    assert set(array(asked_again.versions, "int32")) == {1}


@pytest.mark.parametrize("harness", ["claude-code", "codex"])
async def test_a_harness_waits_while_its_execution_is_suspended_and_no_cell_is_there(
    harness, programs, model_dir, tmp_path, undisturbed
):
    """C2: suspended in the middle of its first call, every cell taken for training, resumed when one is back: it goes on as if nothing had been."""
    if harness not in undisturbed:
        await run_plainly(harness, programs, model_dir, tmp_path / "plain", undisturbed)
    (folder := tmp_path / "run").mkdir()
    job = JOBS[harness]
    script = job.script([HOLD + job.main[0], *job.main[1:]])
    async with Stack(folder, model_dir, script, environment(harness, programs)) as stack:
        name = await stack.dispatch()
        first = await stack.held(1)
        await stack.command(name, 1, "suspend", ExecutionSuspended)
        for cell in ("cell-0", "cell-1"):
            await stack.to_training(cell)
        await stack.to_rollout("cell-1")
        await stack.command(name, 2, "resume", ExecutionResumed)
        records = check_job(stack, await stack.ended(name), harness)
    assert shape(records) == undisturbed[harness]
    assert first["call_id"] == next(record for record in records if record.role == "main").call_id

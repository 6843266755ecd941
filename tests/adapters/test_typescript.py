"""The TypeScript client, generated from proto/, as a process of Node at the real rollout service (E: custom environments as gRPC clients)."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gyre.records import ExecutionStarted
from tests.adapters.stack import tool_text
from tests.support import ROOT

pytestmark = pytest.mark.timeout(600)
GUESSING = "Guess my number"


@pytest.fixture
def command() -> list[str]:
    return ["node", str(Path(os.environ["GYRE_TYPESCRIPT"]) / "dist" / "guessing.js")]


def guess(number: int) -> str:
    return tool_text("guess", number=number)


def test_the_committed_contract_is_what_proto_generates():
    done = subprocess.run(
        [sys.executable, "tools/gen_typescript.py", "--check"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


async def test_a_job_is_done_by_an_environment_in_typescript(stack, command):
    """Seed 14: the number is 4. Too high, no integer, right: three turns on record, two of them guesses, each call of step counted."""
    script = [{"when": GUESSING, "say": [guess(7), tool_text("guess", number="four"), guess(4)]}]
    async with stack(script, command, "guessing") as running:
        name = await running.dispatch(seed=14)
        ended = await running.ended(name)
        assert (ended.ending, ended.reason, ended.evaluation.outcome) == ("completed", "submitted", 1.0), ended
        assert ended.evaluation.evidence == {"best": 0, "guesses": 2} and ended.evaluation.milestones == {"close": True}
        assert (ended.turns, ended.external_calls, ended.attempt) == (3, 3, 1)
        started = running.run.of(ExecutionStarted, execution_id=name)[0]
        assert started.tool_versions["node"].startswith("v") and len(running.records(name)) == 3
        assert await running.stop_environment() == 0


async def test_limits_are_scored_on_what_is_there(stack, command):
    """B4: a turn limit of two, one guess next to the number: timed_out, judged, the milestone reached. No tool call: completed, stopped."""
    script = [{"when": GUESSING, "say": [guess(3), guess(9), "I do not know."]}]
    async with stack(script, command, "guessing") as running:
        ended = await running.ended(await running.dispatch(seed=4, turns_max=2))
        assert (ended.ending, ended.reason, ended.evaluation.outcome) == ("timed_out", "turns", 0.0)
        assert ended.evaluation.valid and ended.evaluation.milestones == {"close": True}
        ended = await running.ended(await running.dispatch(seed=5))
        assert (ended.ending, ended.reason, ended.evaluation.outcome) == ("completed", "stopped", 0.0)


async def test_an_execution_outlives_the_gateway(stack, command):
    """kill -9 of the gateway between two executions: the stream is made anew, under the same instance, and the next one is served."""
    script = [{"when": GUESSING, "say": [guess(1)]}]
    async with stack(script, command, "guessing") as running:
        assert (await running.ended(await running.dispatch(seed=1))).evaluation.outcome == 1.0
        await running.restart_gateway()
        assert (await running.ended(await running.dispatch(seed=11))).evaluation.outcome == 1.0


async def test_a_wrong_key_is_told_so(stack, command):
    """Exit status 2 and the gateway's reason, as every environment process ends."""
    async with stack([], command, "guessing") as running:
        address = running.run.folder.endpoint("rollout")
        asked = [*command, "--address", address, "--key", "wrong"]
        done = await asyncio.to_thread(subprocess.run, asked, capture_output=True, text=True, timeout=60)
        assert done.returncode == 2 and "refused this environment" in done.stderr

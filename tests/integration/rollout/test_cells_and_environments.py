"""Weights in flight at a real cell, and the public environment library against the real gateway (A1, A4, B4)."""

import asyncio
import hashlib
import itertools
import shutil
import signal
import time
from typing import Any

import pytest

from gyre.api.rollout.v1 import environments_pb2 as pb
from gyre.env import Environment, Score, StepResult, serve_async
from gyre.env.snapshots.spacing import Spacing
from gyre.records import AlarmRaised, ExecutionEnded, WeightsPublished, array

pytestmark = pytest.mark.asyncio(loop_scope="module")

START = [{"role": "user", "content": "go"}]


class Echo(Environment):
    """A world in which nothing happens, and which can judge that."""

    name = "echo"
    milestones = {"asked": 0.2}

    def tools(self):
        return [
            {
                "type": "function",
                "function": {"name": "read_file", "parameters": {"type": "object", "properties": {"path": {}}}},
            }
        ]

    def reset(self):
        return [{"role": "system", "content": "s"}, {"role": "user", "content": f"task {self.task.task_id}"}]

    def step(self, call):
        return StepResult(content="nothing", done=False)

    def verified(self):
        return {"asked"}

    def score(self):
        return Score(outcome=0.5, milestones={"asked": True}, evidence={"looked": 1})


async def test_an_environment_served_by_the_library_runs_through(driver):
    """A1: Attach, assignment, model calls with the execution's key, ending, all by gyre.env."""
    served = asyncio.create_task(
        serve_async(
            Echo, name="echo", slots=4, address=driver.run.folder.endpoint("rollout"), key=driver.run.environment_key
        )
    )
    names = [driver.name(10 + index) for index in range(6)]
    for name in names:
        await driver.dispatch(name, environment="echo", turns_max=3)
    for name in names:
        ending = await driver.fact(lambda f, name=name: isinstance(f, ExecutionEnded) and f.execution_id == name)
        assert ending.ending in ("completed", "timed_out") and ending.turns >= 1
        assert (ending.evaluation.outcome, ending.evaluation.milestones) == (0.5, {"asked": True})
        assert ending.evaluation.milestone_turns == {"asked": 0}, "it held from the start, and was looked for (D3)"
    served.cancel()
    await asyncio.gather(served, return_exceptions=True)


async def test_the_ending_says_how_many_snapshots_there_were(driver, tmp_path, monkeypatch):
    """C4: one at the start; a second is not due within its three turns, however long a busy machine takes for them."""
    monkeypatch.setattr(Spacing, "interval_turns", lambda self: 4)

    class Filed(Echo):
        name = "filed"

        def reset(self):
            self.workspace = tmp_path / self.task.task_id
            self.workspace.mkdir(exist_ok=True)
            return super().reset()

    address, key = driver.run.folder.endpoint("rollout"), driver.run.environment_key
    served = asyncio.create_task(serve_async(Filed, name="filed", slots=1, address=address, key=key))
    name = driver.name(60)
    await driver.dispatch(name, environment="filed", turns_max=3)
    ending = await driver.fact(lambda f: isinstance(f, ExecutionEnded) and f.execution_id == name)
    assert (ending.snapshots, ending.rollback_turns) == (1, 0) and ending.evaluation.outcome == 0.5
    served.cancel()
    await asyncio.gather(served, return_exceptions=True)


async def test_published_weights_are_taken_while_calls_run_and_damaged_ones_are_refused(driver, model_dir):
    """A4: a token carries the version that sampled it; a checksum that does not fit leaves the old weights serving."""
    weights = driver.run.folder.weights
    good = weights / "v000001.safetensors"
    shutil.copy(model_dir / "model.safetensors", good)
    checksum = hashlib.sha256(good.read_bytes()).hexdigest()
    key, _ = await driver.begin(output_tokens_max=8, turns_max=10_000)
    client = driver.client(key)

    async def publish(version: int, checksum: str) -> None:
        await driver.trainer.publish(
            WeightsPublished(
                version=version, path=str(good), checksum=checksum, bytes=good.stat().st_size, at_s=time.time()
            )
        )

    async def version_of_call(index: int) -> int:
        await client.chat.completions.create(model="m", messages=[*START, {"role": "user", "content": str(index)}])
        return int(array((await driver.recorded(index + 1))[index].versions, "int32")[-1])

    assert await version_of_call(0) == 0
    await publish(1, checksum)
    await publish(2, "0" * 64)
    alarms = [
        await driver.fact(lambda f, s=s: isinstance(f, AlarmRaised) and f.service == s) for s in ("cell-0", "cell-1")
    ]
    assert all(alarm.kind == "weights" and alarm.values == {"version": 2.0} for alarm in alarms)
    assert await version_of_call(1) in (0, 1)
    await driver.to_training("cell-0")
    await driver.to_rollout("cell-0")
    await publish(3, checksum)
    calls = itertools.count(2)

    async def has_third() -> bool:
        return await version_of_call(next(calls)) == 3

    await driver.until(has_third)


async def test_a_cell_killed_in_mid_call_loses_nothing_and_finds_its_place_again(driver):
    """A1, A6: its calls go on at the other cell; the process that starts anew loads the newest weights by the last role fact."""
    clients = [driver.client((await driver.begin(index, output_tokens_max=450))[0]) for index in range(4)]
    calls = [client.chat.completions.create(model="m", messages=START, stream=True) for client in clients]
    streams = [aiter(stream) for stream in await asyncio.gather(*calls)]
    await asyncio.gather(*(anext(one) for one in streams))
    await driver.kill_cell(0)
    for one in streams:
        last = [chunk async for chunk in one][-1]
        assert last.choices[0].finish_reason
    for index in range(4):
        (record,) = await driver.recorded(1, index)
        assert record.cells[-1] == "cell-1" or record.cells == ["cell-0"]
        assert len(record.output_ids) == len(record.logprobs) == len(record.versions)
    await driver.start_cell(0)

    async def serving() -> Any:
        status = await driver.cell_status(0)
        return status if status.serving else None

    assert (await driver.until(serving)).version == 3, "the newest that was published"


async def test_a_gateway_told_to_stop_ends_cleanly_and_its_successor_goes_on(driver):
    """State and restarts: SIGTERM is exit code 0; the execution's next call continues its session."""
    key, _ = await driver.begin()
    client = driver.client(key, retries=20)
    first = await client.chat.completions.create(model="m", messages=START, max_tokens=8)
    assert await driver.restart_gateway(signal.SIGTERM) == 0
    message = first.choices[0].message.model_dump(exclude_none=True)
    await client.chat.completions.create(model="m", messages=[*START, message, {"role": "user", "content": "on"}])
    records = await driver.recorded(2)
    assert records[1].parent == records[0].call_id


async def test_messages_above_four_mebibytes_are_refused_by_the_transport(driver):
    """Security: nothing that large is read into memory; the stream breaks, and a new one is welcome."""
    _, attempt = await driver.begin()
    await driver.environment.say(
        driver.execution, attempt, ended=pb.Ended(ending="failed", reason="x", detail="y" * 5_000_000)
    )
    await driver.environment.broken.wait()
    await driver.environment.detach()
    welcome = await driver.environment.attach()
    assert welcome.HasField("welcome") and not welcome.welcome.unknown
    assert not [fact for fact in driver.about() if isinstance(fact, ExecutionEnded)]

"""The TypeScript client, generated from proto/, as a process of Node at the real rollout service (E: custom environments as gRPC clients)."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import grpc.aio
import pytest
from aiohttp import web

from gyre.api.rollout.v1 import environments_pb2 as pb
from gyre.api.rollout.v1 import environments_pb2_grpc as rpc
from gyre.records import ExecutionStarted
from tests.adapters.stack import tool_text
from tests.support import ROOT, until

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


class Gateway(rpc.EnvironmentServiceServicer):
    """Assigns one execution, dies when it has started, and is slow to say Welcome when it is back; the episode ends meanwhile."""

    def __init__(self, model: str) -> None:
        self._api_base, self.heard, self.model_answers, self.welcome = model, [], asyncio.Event(), asyncio.Event()

    async def Attach(self, requests, context):
        stream = len(self.heard)
        self.heard.append([])
        hello = await anext(aiter(requests))
        said = pb.Welcome(api_base=self._api_base, model="m", heartbeat_s=0.3)
        if stream == 0:
            yield pb.AttachResponse(request_id=hello.request_id, welcome=said)
            given = pb.Assignment(
                task_id="t", task_type="t", seed=3, api_key="k", wall_s=60, turns_max=5, output_tokens_max=9
            )
            yield pb.AttachResponse(request_id="a", execution_id="g000001-e0", attempt=1, assignment=given)
            await self._hear(requests, stream, until="started")
            return
        self.model_answers.set()
        hearing = asyncio.create_task(self._hear(requests, stream, until="ended"))
        await self.welcome.wait()
        yield pb.AttachResponse(request_id=hello.request_id, welcome=said)
        await hearing

    async def _hear(self, requests, stream: int, until: str) -> None:
        async for message in requests:
            self.heard[stream].append(message.WhichOneof("body"))
            if self.heard[stream][-1] == until:
                return


async def test_on_a_new_stream_nothing_is_said_before_its_welcome_and_started_before_ended(command):
    """An Ended whose Started the gateway has not seen is one that it cannot believe."""
    app, gateway = web.Application(), None

    async def complete(request):
        await gateway.model_answers.wait()
        return web.json_response({"choices": [{"message": {"role": "assistant", "content": "done"}}]})

    app.router.add_post("/v1/chat/completions", complete)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    gateway = Gateway(f"http://127.0.0.1:{runner.addresses[0][1]}/v1")
    server = grpc.aio.server()
    rpc.add_EnvironmentServiceServicer_to_server(gateway, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    process = await asyncio.create_subprocess_exec(*command, "--address", f"127.0.0.1:{port}", "--key", "k")
    try:
        await until(lambda: len(gateway.heard) > 1 and gateway.heard[1].count("heartbeat") >= 5, 60)
        assert set(gateway.heard[1]) == {"heartbeat"}
        gateway.welcome.set()
        await until(lambda: "ended" in gateway.heard[1], 60)
        assert [said for said in gateway.heard[1] if said != "heartbeat"] == ["started", "ended"]
    finally:
        process.kill()
        await process.wait()
        await server.stop(0)
        await runner.cleanup()


HANGING = """
const { Episode } = await import(process.argv[1]);
const { WallClock } = await import(process.argv[2]);
const world = {
  scoreMs: 50, tools: () => [], reset: () => [], step: () => ({ content: "" }), score: () => new Promise(() => setInterval(() => {}, 1000)),
};
const model = { complete: async () => ({ role: "assistant", content: "done" }) };
const limits = { wallS: 60, turnsMax: 3, observationBytesMax: 1000 };
const ended = await new Episode(() => world, {}, limits, model, new WallClock(), () => {}).run();
console.log(JSON.stringify(ended));
process.exit(0);
"""


def test_a_score_that_does_not_return_is_an_ending_of_its_own():
    """As in Python: the slot is free again, and nothing is rewarded."""
    dist = Path(os.environ["GYRE_TYPESCRIPT"]).resolve() / "dist"
    asked = ["node", "--input-type=module", "-e", HANGING, str(dist / "episode.js"), str(dist / "wall.js")]
    done = subprocess.run(asked, capture_output=True, text=True, timeout=60)
    ended = json.loads(done.stdout)
    assert (ended["ending"], ended["reason"], ended.get("evaluation")) == ("failed", "environment_hung", None), (
        done.stderr
    )

"""An execution's snapshot is where other executions begin (C2, C3)."""

import asyncio
import json
import subprocess
import sys

import aiohttp
import pytest

from gyre.env import Environment, Score, StepResult, Task, fork
from gyre.env.ends import Limits
from gyre.env.episode import Episode
from gyre.env.harness import HarnessEnvironment
from gyre.env.model import ChatModel
from gyre.env.shelf import Shelf
from gyre.env.snapshots.spacing import Spacing
from gyre.errors import NotFound
from tests.unit.env.doubles import ChatDouble, tool_reply
from tests.unit.env.harness.test_going_on import PROGRAM

WRITE = {"type": "function", "function": {"name": "write", "parameters": {"type": "object", "properties": {}}}}


class Logging(Environment):
    """`write` adds a line to the log of the workspace."""

    name = "logging"

    def tools(self):
        return [WRITE]

    def reset(self):
        self.workspace = self.folder / f"world{len(list(self.folder.glob('world*')))}" / "work"
        self.workspace.mkdir(parents=True)
        (self.workspace / "given").write_text("as reset makes it")
        return [{"role": "user", "content": "write"}]

    def step(self, call):
        with (self.workspace / "log").open("a") as file:
            file.write("line\n")
        return StepResult(content="written")

    def score(self):
        files = {path.name: path.read_text() for path in self.workspace.iterdir()}
        return Score(outcome=0.0, evidence={"files": files})


class Noting(HarnessEnvironment):
    name = "noting"
    program = PROGRAM

    def prepare(self, workspace):
        (workspace / "given").write_text("as prepare makes it")
        return "Write the log."

    def evaluate(self, workspace, ended):
        return Score(outcome=0.0, evidence={"files": {path.name: path.read_text() for path in workspace.iterdir()}})


def step_by_step(_body, n):
    return tool_reply(name="write") if n < 4 else {"role": "assistant", "content": "Done."}


def by_itself(_body, n):
    return {"role": "assistant", "content": "do echo line >> log" if n < 4 else "Done."}


@pytest.fixture(params=["steps", "harness"])
def kind(request, tmp_path, monkeypatch):
    """(environment, its model)."""
    monkeypatch.setattr("gyre.env.trail.SETTLE_S", 0.0)
    monkeypatch.setattr(Spacing, "interval_turns", lambda self: 2)
    if request.param == "harness":
        return Noting, by_itself
    return type("LoggingHere", (Logging,), {"folder": tmp_path}), step_by_step


async def attempt(kind, answer, execution: str, state, payload=None):
    """(how it ended, what it was made of)."""
    made_of = []

    async def note(evidence) -> None:
        made_of.append(evidence)

    task = Task(task_id=execution, task_type="t", seed=1, payload=payload or {})
    async with ChatDouble(answer) as chat, aiohttp.ClientSession() as http:
        model = ChatModel(http, lambda: chat.base, "key", {})
        limits = Limits(wall_s=600, turns_max=50, observation_bytes_max=1000)
        keeper = Shelf(state).keeper(execution, 1, "t")
        ending = await Episode(kind, task, limits, model, note, keeper=keeper).run()
    return ending, made_of[0] if made_of else None


def files_of(ending) -> dict[str, str]:
    return json.loads(ending.evaluation.evidence_json)["files"]


async def test_two_executions_begin_where_another_one_is_and_all_go_their_own_ways(kind, tmp_path):
    """Forked in its fourth call, its newest snapshot after its second turn: two lines are there, and what `reset` made is not. It is on record where
    they come from; they are first attempts, not replays; and the one that was forked never notices."""
    environment, answer = kind
    forked = []

    async def ask(body, n):
        if n == 4:
            forked.append(await asyncio.to_thread(fork, tmp_path / "state", "g0-e0"))
        return answer(body, n)

    first, _ = await attempt(environment, ask, "g0-e0", tmp_path / "state")
    assert files_of(first)["log"] == "line\n" * 3
    (start,) = forked
    for execution in ("g1-e0", "g1-e1"):
        ending, made_of = await attempt(environment, answer, execution, tmp_path / "state", {"starts_from": start})
        assert files_of(ending)["log"] == "line\n" * 5 and ending.ending == "completed"
        assert made_of.dependency_snapshot == f"fork:g0-e0 snapshot:{start['snapshot']}" and not made_of.is_replay
    Shelf(tmp_path / "state").store().collect()
    ending, _ = await attempt(environment, answer, "g2-e0", tmp_path / "state", {"starts_from": start})
    assert files_of(ending)["log"] == "line\n" * 5, "kept beyond its execution"


async def test_a_beginning_that_is_none_fails_the_execution_in_words(kind, tmp_path):
    environment, answer = kind
    for payload, state, reason, said in (
        ({"snapshot": "0" * 64}, tmp_path / "state", "environment_error", "there is no snapshot"),
        ({"snapshot": 3}, tmp_path / "state", "environment_invalid", "must be what gyre.env.fork returned"),
        ({"snapshot": "0" * 64}, None, "environment_invalid", "give `state`"),
    ):
        ending, _ = await attempt(environment, answer, "g0-e0", state, {"starts_from": payload})
        assert (ending.ending, ending.reason) == ("failed", reason) and said in ending.detail


def test_the_command_prints_what_a_payload_needs(tmp_path):
    with pytest.raises(NotFound, match="no folder of an environment's state"):
        fork(tmp_path / "state", "g0-e0")
    store = Shelf(tmp_path / "state").store()
    with pytest.raises(NotFound, match="no snapshot of g0-e0"):
        fork(tmp_path / "state", "g0-e0")
    (tmp_path / "tree" / "work").mkdir(parents=True)
    digest = store.take(tmp_path / "tree", reference="g0-e0.trail").digest
    command = [sys.executable, "-m", "gyre.env.forking", str(tmp_path / "state"), "g0-e0"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert json.loads(done.stdout) == {"starts_from": {"snapshot": digest, "folder": "work", "of": "g0-e0"}}
    assert subprocess.run([*command[:-1], "g0-e1"], capture_output=True).returncode == 2

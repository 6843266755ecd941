"""A harness's next attempt goes on from the snapshot of a lost one (C2, C4): what is kept, what is lost, and what is none of both."""

import asyncio
import contextlib
import fcntl
import json
import os
import sys
import threading
import time
from pathlib import Path

import aiohttp
import pytest

from gyre.env import Score, Task, trail
from gyre.env.ends import Limits
from gyre.env.episode import Episode
from gyre.env.harness import HarnessEnvironment, Program, Subprocess, sandbox
from gyre.env.harness.programs import shipped
from gyre.env.model import ChatModel
from gyre.env.shelf import Shelf
from gyre.env.snapshots import Series, TreeChanged
from gyre.env.snapshots.spacing import Spacing
from gyre.errors import Conflict
from tests.support import until
from tests.unit.env.doubles import ChatDouble

TASK = Task(task_id="t1", task_type="noting", seed=7)
AGENT = [sys.executable, str(Path(__file__).with_name("noting_agent.py"))]
PROGRAM = Program(
    command=[*AGENT, "{prompt}"],
    goes_on=[*AGENT, "--continue", "Go on."],
    environment={"MODEL_URL": "{api}", "MODEL_KEY": "{key}"},
)


class Noting(HarnessEnvironment):
    name = "noting"
    program = PROGRAM

    def prepare(self, workspace):
        (workspace / "log").write_text("")
        return "Write the log."

    def evaluate(self, workspace, ended):
        return Score(outcome=float((workspace / "log").read_text().split() == ["1", "2", "3", "4"]))


def turn(body) -> int:
    return sum(message["role"] == "assistant" for message in body["messages"]) + 1


def say(text: str) -> dict:
    return {"role": "assistant", "content": text}


def write(body, _n):
    """Turn n writes n; the fifth is the last."""
    return say(f"do echo {turn(body)} >> log" if turn(body) < 5 else "Done.")


class Attempts:
    """Of one execution, with one folder of state."""

    def __init__(self, state: Path, **changes) -> None:
        self.state, self.kind = state, type("Changed", (Noting,), changes)
        self.requests: list[list[dict]] = []
        self.is_replay: list[bool] = []

    async def run(self, number: int, answer=write, turns_max: int = 50):
        async def note(evidence) -> None:
            self.is_replay.append(evidence.is_replay)

        async with ChatDouble(answer) as chat, aiohttp.ClientSession() as http:
            self.requests.append(chat.requests)
            model = ChatModel(http, lambda: chat.base, "key", {})
            limits = Limits(wall_s=600, turns_max=turns_max, observation_bytes_max=1000)
            keeper = Shelf(self.state).keeper("g0-e0", number, TASK.task_type)
            return await Episode(self.kind, TASK, limits, model, note, keeper=keeper).run()

    async def lose(self, number: int, at: int) -> None:
        """One that is lost while the model is asked for turn `at`."""
        asked = asyncio.Event()

        async def answer(body, n):
            if turn(body) == at:
                asked.set()
                await asyncio.sleep(600)
            return write(body, n)

        task = asyncio.create_task(self.run(number, answer))
        await asyncio.wait([task, waiting := asyncio.ensure_future(asked.wait())], return_when="FIRST_COMPLETED")
        waiting.cancel()
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    @property
    def turns(self) -> list[list[int]]:
        """What each attempt asked the model for."""
        return [[turn(body) for body in requests] for requests in self.requests]


def kept(ending) -> dict:
    return json.loads(ending.evaluation.evidence_json)["harness"]["snapshots"]


@pytest.fixture
def every(monkeypatch):
    """Turns between two snapshots."""
    monkeypatch.setattr(trail, "SETTLE_S", 0.0)
    return lambda turns: monkeypatch.setattr(Spacing, "interval_turns", lambda self: turns)


async def test_each_attempt_goes_on_from_the_one_before_and_all_that_was_lost_is_counted(tmp_path, every):
    """Snapshots before turns 3 and 5 of the execution. Lost in its fourth call, which loses turn 3; again in the third; then done."""
    every(2)
    attempts = Attempts(tmp_path)
    await attempts.lose(1, 4)
    await attempts.lose(2, 4)
    ending = await attempts.run(3)
    assert attempts.turns == [[1, 2, 3, 4], [3, 4], [3, 4, 5]] and attempts.is_replay == [False, True, True]
    assert (ending.ending, ending.reason, ending.evaluation.outcome) == ("completed", "stopped", 1.0)
    assert (ending.snapshots, ending.rollback_turns) == (3, 2)
    assert kept(ending)["lost_turns"] == 2 and kept(ending)["turns_before"] == 2
    assert not list((tmp_path / "records").iterdir()) and not list((tmp_path / "snapshots" / "references").iterdir())


async def test_an_attempt_that_was_lost_before_its_first_turn_or_is_over_leaves_nothing_to_go_on_from(tmp_path, every):
    every(1)
    attempts = Attempts(tmp_path)
    await attempts.lose(1, 1)
    await attempts.run(2)
    await attempts.run(3)
    assert attempts.turns == [[1], [1, 2, 3, 4, 5], [1, 2, 3, 4, 5]] and attempts.is_replay == [False] * 3


@pytest.mark.parametrize(
    "changes", [{"program": Program(command=PROGRAM.command, environment=PROGRAM.environment)}, {"is_relayed": False}]
)
async def test_a_harness_that_cannot_go_on_begins_anew(tmp_path, every, changes):
    """No command for it, or nobody who sees when it waits for its model."""
    every(1)
    attempts = Attempts(tmp_path, **changes)
    await attempts.lose(1, 3)
    ending = await attempts.run(2)
    assert attempts.turns == [[1, 2, 3], [1, 2, 3, 4, 5]] and attempts.is_replay == [False, False]
    assert ending.evaluation.outcome == 1.0 and ending.rollback_turns == 0


async def test_a_snapshot_that_does_not_come_back_makes_a_new_world(tmp_path, every):
    every(1)
    attempts = Attempts(tmp_path)
    await attempts.lose(1, 3)
    for manifest in (tmp_path / "snapshots" / "manifests").iterdir():
        manifest.chmod(0o600)
        manifest.write_bytes(b"rubbish")
    ending = await attempts.run(2)
    assert attempts.turns[1] == [1, 2, 3, 4, 5] and attempts.is_replay == [False, False]
    assert ending.evaluation.outcome == 1.0 and ending.rollback_turns == 0


async def test_a_place_that_is_taken_makes_a_new_world(tmp_path, every, monkeypatch):
    """The harness's notes are full of its own paths: elsewhere it would go on with files that are not there."""
    every(1)
    monkeypatch.setattr(sandbox, "PLACE_S", 0.1)
    places = []

    def prepare(self, workspace):
        places.append(self.place)
        return Noting.prepare(self, workspace)

    attempts = Attempts(tmp_path, prepare=prepare)
    await attempts.lose(1, 3)
    os.mkdir(places[0])
    folder = os.open(places[0], os.O_RDONLY)
    fcntl.flock(folder, fcntl.LOCK_EX)
    try:
        ending = await attempts.run(2)
    finally:
        os.close(folder)
        os.rmdir(places[0])
    assert attempts.turns[1] == [1, 2, 3, 4, 5] and places[1] != places[0] and ending.evaluation.outcome == 1.0


def test_what_a_lost_sandbox_left_in_its_place_goes_when_nobody_holds_it(tmp_path, monkeypatch):
    first, second = Subprocess(folder=tmp_path), Subprocess(folder=tmp_path)
    monkeypatch.setattr(sandbox, "PLACE_S", 0.1)
    with pytest.raises(Conflict, match="which has not ended"):
        second.move(first.place)
    assert second.work.is_dir(), "where it was"
    (left := tmp_path / "left").mkdir()
    (left / "file").write_text("of a machine that was switched off")
    monkeypatch.setattr(sandbox, "PLACE_S", 60.0)
    second.move(str(left))
    assert second.place == str(left) and sorted(path.name for path in left.rglob("*")) == ["home", "tree", "work"]
    second.close()
    assert [path.name for path in tmp_path.iterdir()] == [Path(first.place).name]
    first.close()


async def test_a_snapshot_that_cannot_be_taken_costs_the_execution_nothing(tmp_path, every):
    """Folders in each other without end are beyond the limits of a snapshot: said in the log and on record, tried again ever more rarely."""
    every(1)
    deep = f"{sys.executable} -c \"import os\nfor _ in range(110): os.mkdir('x'); os.chdir('x')\""

    def answer(body, _n):
        return say(f"do {deep}; echo 1 >> log") if turn(body) == 1 else write(body, 0)

    ending = await Attempts(tmp_path).run(1, answer)
    assert (ending.ending, ending.evaluation.outcome, ending.snapshots) == ("completed", 1.0, 1)
    assert kept(ending) == {"taken": 1, "failed": 2}


async def test_turns_of_the_attempts_before_count(tmp_path, every):
    """Two turns are behind the snapshot, so two are left of four: the fifth call is held up, its harness ended and judged."""
    every(2)
    attempts = Attempts(tmp_path)
    await attempts.lose(1, 4)
    ending = await attempts.run(2, turns_max=4)
    assert attempts.turns[1] == [3, 4]
    assert (ending.ending, ending.reason, ending.evaluation.outcome) == ("timed_out", "turns", 1.0)


async def test_a_snapshot_that_takes_long_holds_no_call_up_for_long_and_is_the_only_one(tmp_path, every, monkeypatch):
    """The one before turn 2 is not there before the fourth call is: the calls go on, none begins another, and a tree that changed makes none."""
    every(1)
    monkeypatch.setattr(trail, "HELD_S_MAX", 0.05)
    fourth, take, begun = threading.Event(), Series.take, []

    def slow(self, tree, is_at_once=False):
        begun.append(len(begun))
        if len(begun) == 2:
            fourth.wait(60.0)
            raise TreeChanged("it was written meanwhile")
        return take(self, tree, is_at_once)

    async def answer(body, n):
        if turn(body) == 4:
            assert begun == [0, 1]
            fourth.set()
        return write(body, n)

    monkeypatch.setattr(Series, "take", slow)
    ending = await Attempts(tmp_path).run(1, answer)
    assert (ending.ending, ending.evaluation.outcome) == ("completed", 1.0) and kept(ending)["failed"] == 1


async def test_what_a_lost_execution_left_goes_with_its_snapshots_after_a_week(tmp_path, every):
    every(1)
    attempts = Attempts(tmp_path)
    await attempts.lose(1, 3)
    shelf, records = Shelf(tmp_path), tmp_path / "records"
    for age_s, left in ((6 * 86_400, (1, 2)), (8 * 86_400, (0, 0))):
        for folder in (records, tmp_path / "snapshots" / "references"):
            for path in folder.iterdir():
                os.utime(path, (time.time() - age_s,) * 2)
        shelf._collect()
        assert (len(list(records.iterdir())), len(list((tmp_path / "snapshots" / "manifests").iterdir()))) == left


async def test_no_snapshot_is_taken_while_a_call_is_in_flight(tmp_path, every, monkeypatch):
    """A harness of two agents, one of which waits for its answer until the other is in its third turn: those turns' calls pass, and are no moment
    for a snapshot. There is one before the first call, and before turns 4 and 5 (before 4 where the relay is through with the other by then)."""
    every(1)
    in_flight, reached, taken_at = 0, set(), []
    take = Series.take

    def noted(self, tree, is_at_once=False):
        taken_at.append(in_flight)
        return take(self, tree, is_at_once)

    async def answer(body, n):
        nonlocal in_flight
        in_flight += 1
        agent = body["messages"][0]["content"]
        reached.add((agent, turn(body)))
        await until(lambda: (("Main.", 3) if agent == "Sub." else ("Sub.", 1)) in reached)
        in_flight -= 1
        if agent == "Main." and turn(body) == 3:
            await until(lambda: not in_flight)
        return say("Done.") if agent == "Sub." else write(body, n)

    monkeypatch.setattr(Series, "take", noted)
    agent = " ".join(AGENT)
    both = Program(
        command=["sh", "-c", f"{agent} Sub. & mkdir $HOME/main; HOME=$HOME/main {agent} Main.; wait"],
        goes_on=["true"],
        environment=PROGRAM.environment,
    )
    ending = await Attempts(tmp_path, program=both).run(1, answer)
    assert ending.evaluation.outcome == 1.0 and taken_at in ([0, 0], [0, 0, 0])


@pytest.mark.parametrize("name", ["claude-code", "codex", "qwen-code", "opencode"])
def test_a_shipped_harness_that_goes_on_does_so_by_its_own_program(name):
    row = shipped()[name]
    assert row.goes_on[0] == row.command[0] and "{prompt}" not in row.goes_on

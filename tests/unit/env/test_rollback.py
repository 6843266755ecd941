"""Going back to a snapshot (C4): the world, the messages and the books."""

import asyncio
import tempfile
import threading
import time
from pathlib import Path

import aiohttp
import pytest

from gyre.env import Rollback, Score, StepResult
from gyre.env.episode import Episode, Limits
from gyre.env.keeping import ROLLBACKS_MAX, STATE_BYTES_MAX
from gyre.env.model import ChatModel
from gyre.env.shelf import Shelf
from gyre.env.snapshots.spacing import Spacing
from gyre.env.wall import WallClock
from tests.unit.env.doubles import ChatDouble, Counter, tool_reply
from tests.unit.env.test_episode import TASK, _ignored, drive


@pytest.fixture(autouse=True)
def every_second_turn(monkeypatch):
    """Snapshots 1, 2, 3 after turns 0, 2, 4: steps of a millisecond would have none but the first."""
    monkeypatch.setattr(Spacing, "is_due", lambda self, turns: turns >= 2)


class Writer(Counter):
    """Writes a line in a file of its workspace for each step, and counts in memory; `breaks` at these steps, which are counted over all worlds."""

    breaks: tuple[int, ...] = ()
    steps = 0
    folder: Path

    def reset(self):
        self.workspace = self.folder / "work"
        self.workspace.mkdir()
        self.count = 0
        return super().reset()

    def step(self, call):
        type(self).steps += 1
        self.count += 1
        with (self.workspace / "log").open("a") as file:
            file.write(f"{self.count}\n")
        if type(self).steps in self.breaks:
            raise Rollback("the session is lost")
        return StepResult(content=str(self.count), done=self.count == 5)

    def snapshot(self):
        return str(self.count).encode()

    def restore(self, state):
        self.count = int(state)

    def verified(self):
        return {"counted"} if self.count >= 3 else set()

    def score(self):
        lines = (self.workspace / "log").read_text().split()
        return Score(outcome=float(lines == ["1", "2", "3", "4", "5"]), milestones={"counted": True})


@pytest.fixture
def writer(tmp_path):
    return type("OneWriter", (Writer,), {"folder": tmp_path})


def recorded(body, n):
    return tool_reply()


async def test_a_rollback_brings_back_files_memory_and_messages_and_its_loss_is_counted(writer):
    """The fourth step breaks: back to snapshot 2 of turn 2, two turns lost, and a third snapshot after turn 4. The world ends as if nothing had
    happened."""
    writer.breaks = (4,)
    ending, chat, _ = await drive(writer, recorded)
    assert (ending.ending, ending.reason, ending.evaluation.outcome) == ("completed", "submitted", 1.0)
    assert (ending.snapshots, ending.rollback_turns) == (3, 2)
    assert ending.external_calls == 7
    assert [len(request["messages"]) for request in chat.requests] == [1, 3, 5, 7, 9], (
        "lost turns are repeated, not sampled again"
    )


async def test_milestones_of_the_lost_turns_are_looked_for_again(writer):
    """`counted` holds from turn 3 on; turn 4's step breaks and turn 3 is made a second time, as the same third call."""
    writer.breaks = (4,)
    ending, _, _ = await drive(writer, recorded)
    assert ending.evaluation.milestone_turns == {"counted": 3}


async def test_lost_turns_do_not_count_twice(writer):
    """Repeated replies are no model calls: five are enough for an execution of five turns of which two were lost."""
    writer.breaks = (4,)
    ending, _, _ = await drive(writer, recorded, turns_max=5)
    assert ending.reason == "submitted"


async def test_a_world_that_does_otherwise_the_second_time_is_gone_on_in_for_real(writer):
    """Step 3 says something else when it is repeated: its reply stays, turn 4's is forgotten and the model is asked with what is now before it."""
    writer.breaks = (4,)

    def step(self, call, real=Writer.step):
        result = real(self, call)
        return StepResult(content=f"other {result.content}", done=result.done) if type(self).steps == 5 else result

    writer.step = step
    ending, chat, _ = await drive(writer, recorded)
    assert ending.reason == "submitted" and ending.rollback_turns == 2
    last = [request["messages"][-1]["content"] for request in chat.requests]
    assert last == ["count to three", "1", "2", "3", "other 3", "4"]


async def test_what_breaks_at_the_same_place_again_fails_the_execution(writer):
    """The first step of every try: the fourth rollback is none, an error is an ending and never a reward."""
    writer.breaks = tuple(range(1, 100))
    ending, _, _ = await drive(writer, recorded)
    assert (ending.ending, ending.reason, ending.evaluation) == ("failed", "environment_error", None)
    assert "the session is lost" in ending.detail and (ending.snapshots, ending.rollback_turns) == (1, ROLLBACKS_MAX)


async def test_without_a_snapshot_there_is_nothing_to_go_back_to():
    class Breaks(Counter):
        def step(self, call):
            raise Rollback("away")

    ending, _, _ = await drive(Breaks, recorded)
    assert (ending.ending, ending.reason, ending.snapshots) == (
        "failed",
        "environment_error",
        0,
    ) and "away" in ending.detail


async def test_an_environment_without_files_goes_back_by_its_state(monkeypatch):
    """`snapshot` and `restore` alone, as coroutines: one rollback from turn 3 to turn 2."""

    class InMemory(Counter):
        broke = False

        async def snapshot(self):
            return str(len(self.calls)).encode()

        async def restore(self, state):
            self.calls = self.calls[: int(state)]

        def step(self, call):
            if len(self.calls) == 2 and not type(self).broke:
                type(self).broke = True
                self.calls += [None] * 7
                raise Rollback("gone")
            return super().step(call)

    ending, _, _ = await drive(InMemory, recorded)
    assert (ending.reason, ending.evaluation.outcome, ending.snapshots, ending.rollback_turns) == (
        "submitted",
        1.0,
        2,
        1,
    )


@pytest.mark.parametrize(
    "broken",
    [
        {"workspace": "/nowhere/at/all"}, {"snapshot": lambda self: "text"}, {"snapshot": lambda self: 1 / 0},
        {"snapshot": lambda self: b"x" * (STATE_BYTES_MAX + 1)},
    ],
)  # fmt: skip
async def test_a_snapshot_that_cannot_be_taken_harms_nobody(broken):
    ending, _, _ = await drive(type("Broken", (Counter,), broken), recorded)
    assert (ending.reason, ending.snapshots) == ("submitted", 0)


async def test_a_workspace_that_is_no_path_is_the_environment_s_fault():
    ending, _, _ = await drive(type("Odd", (Counter,), {"workspace": 17}), recorded)
    assert (ending.ending, ending.reason) == ("failed", "environment_invalid") and "path" in ending.detail


async def test_a_restore_that_fails_fails_the_execution(writer):
    writer.breaks, writer.restore = (4,), lambda self, state: 1 / 0
    ending, _, _ = await drive(writer, recorded)
    assert (ending.ending, ending.reason) == ("failed", "environment_error") and "ZeroDivisionError" in ending.detail


async def test_calls_to_outside_tools_have_a_quota(monkeypatch):
    """C6: two of three calls are carried out, the third is refused in words; 0 are left at the end."""
    bounded = type("Bounded", (Counter,), {"outside": frozenset({"count"}), "calls_max": 2})
    ending, _, _ = await drive(bounded, recorded, turns_max=3)
    assert (ending.reason, ending.external_calls, ending.quota_left) == ("turns", 2, 0)
    ending, _, _ = await drive(Counter, recorded)
    assert ending.quota_left == -1


async def test_suspended_seconds_are_no_cost_of_a_turn(monkeypatch):
    """Two turns, the second with a suspension in the model call: what was measured of both is no more than the rest of the time that passed."""
    measured, paused_s = [], []
    monkeypatch.setattr(Spacing, "stepped", lambda self, seconds: measured.append(seconds))
    kept = type("Kept", (Counter,), {"snapshot": lambda self: b""})
    wall = WallClock()

    async def answer(body, n):
        if n == 2:
            wall.pause()
            begun_s = time.monotonic()
            await asyncio.sleep(0.3)
            paused_s.append(time.monotonic() - begun_s)
            wall.resume()
        return tool_reply()

    async with ChatDouble(answer) as chat, aiohttp.ClientSession() as http:
        model, limits = (
            ChatModel(http, lambda: chat.base, "key", {}),
            Limits(wall_s=600, turns_max=3, observation_bytes_max=1000),
        )
        begun_s = time.monotonic()
        await Episode(kept, TASK, limits, model, _ignored, wall=wall).run()
        passed_s = time.monotonic() - begun_s
    assert len(measured) == 2 and sum(measured) <= passed_s - sum(paused_s)


async def test_many_executions_at_once_keep_no_more_than_they_need(writer, monkeypatch):
    """Forty executions share a shelf that collects after each second one: all succeed, one rollback among them; in the end nothing is referred to,
    and what the last ones left is all there is."""
    monkeypatch.setattr("gyre.env.shelf.COLLECT_EVERY", 2)
    writer.reset = lambda self: (
        setattr(self, "folder", Path(tempfile.mkdtemp(dir=writer.folder))),
        Writer.reset(self),
    )[1]
    shelf, once = Shelf(), threading.Lock()

    def step(self, call):
        result = Writer.step(self, call)
        if self.count == 4 and once.acquire(blocking=False):
            raise Rollback("one of forty")
        return result

    writer.step = step

    async def one(http, chat, index):
        model = ChatModel(http, lambda: chat.base, "key", {})
        limits = Limits(wall_s=600, turns_max=20, observation_bytes_max=1000)
        return await Episode(writer, TASK, limits, model, _ignored, keeper=shelf.keeper(f"e{index}", 1, "t")).run()

    async with ChatDouble(recorded) as chat, aiohttp.ClientSession() as http:
        endings = await asyncio.gather(*(one(http, chat, index) for index in range(40)))
    assert [ending.evaluation.outcome for ending in endings] == [1.0] * 40
    assert sum(ending.rollback_turns > 0 for ending in endings) == 1
    store = shelf.store()
    store.collect()
    assert not list((store.root / "objects").glob("*/*")) and not list((store.root / "references").iterdir())
    shelf.close()
    assert not store.root.exists()

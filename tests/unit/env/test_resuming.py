"""An attempt that goes on where a lost one was: same snapshot, same record, then for real (C2, C3, C4)."""

import asyncio
import json
import re
import threading
from pathlib import Path

import aiohttp
import pytest

from gyre.env import Environment, Rollback, Score, StepResult, Task
from gyre.env.episode import Episode, Limits
from gyre.env.model import ChatModel
from gyre.env.recording import Redactor
from gyre.env.shelf import Shelf
from gyre.env.snapshots.spacing import Spacing
from gyre.errors import InvalidInput
from tests.support import until
from tests.unit.env.doubles import ChatDouble

TASK = Task(task_id="t1", task_type="mailing", seed=7)


def tool(name: str) -> dict:
    return {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": {}}}}


class Mailing(Environment):
    """`write` adds a line to the workspace, `mail` sends one into the world; done after the sixth of either."""

    name = "mailing"
    outside = frozenset({"mail"})
    hangs_at = 0

    def tools(self):
        return [tool("write"), tool("mail")]

    def reset(self):
        self.workspace = self.folder / f"work{len(list(self.folder.glob('work*')))}"
        self.workspace.mkdir()
        (self.workspace / "log").write_text("")
        return [{"role": "user", "content": "write and mail"}]

    async def step(self, call):
        if call.arguments["n"] == self.hangs_at:
            self.hanging.set()
            await asyncio.sleep(600)
        if call.name == "mail":
            self.sent.append(call.arguments["n"])
        else:
            with (self.workspace / "log").open("a") as file:
                file.write(f"{call.arguments['n']}\n")
        return StepResult(content=f"{call.name} {call.arguments['n']}", done=call.arguments["n"] == 6)

    def score(self):
        return Score(outcome=float((self.workspace / "log").read_text().split() == ["1", "3", "5"]))


def act(body, _):
    """Turn n: `write` for odd n, `mail` for even n; n is the number of replies before, plus 1."""
    n = sum(message["role"] == "assistant" for message in body["messages"]) + 1
    call = {"name": "write" if n % 2 else "mail", "arguments": json.dumps({"n": n})}
    return {"role": "assistant", "content": None, "tool_calls": [{"id": f"c{n}", "type": "function", "function": call}]}


@pytest.fixture
def mailing(tmp_path, monkeypatch):
    monkeypatch.setattr(Spacing, "is_due", lambda self, turns: turns >= 2)
    (tmp_path / "worlds").mkdir()
    return type("OneMailing", (Mailing,), {"folder": tmp_path / "worlds", "sent": [], "hanging": threading.Event()})


class Served:
    """Attempts of one execution with one folder of state."""

    def __init__(self, factory, state) -> None:
        self.factory, self.state = factory, state
        self.started = []
        self.chat = None

    async def attempt(self, number: int, answer=act, turns_max: int = 20, shelf: Shelf | None = None):
        async def note(evidence) -> None:
            self.started.append(evidence.is_replay)
            self.made_of = evidence.dependency_snapshot

        shelf = shelf or Shelf(self.state, Redactor())
        async with ChatDouble(answer) as self.chat, aiohttp.ClientSession() as http:
            model = ChatModel(http, lambda: self.chat.base, "key", {})
            limits = Limits(wall_s=600, turns_max=turns_max, observation_bytes_max=1000)
            keeper = shelf.keeper("g0-e0", number, TASK.task_type)
            return await Episode(self.factory, TASK, limits, model, note, keeper=keeper).run()

    async def lose(self, number: int, at: int, answer=act) -> None:
        """An attempt whose process is lost while step `at` is under way."""
        self.factory.hangs_at = at
        self.factory.hanging.clear()
        task = asyncio.create_task(self.attempt(number, answer))
        await until(self.factory.hanging.is_set)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        self.factory.hangs_at = 0

    @property
    def asked(self) -> list[int]:
        """Messages of each model call of the last attempt."""
        return [len(request["messages"]) for request in self.chat.requests]


async def test_the_next_attempt_goes_on_where_the_lost_one_was(mailing, tmp_path):
    """Lost in step 5, after snapshot 3 of turn 4. The new world has lines 1 and 3 from the snapshot and carries out write 5, whose reply is on
    record; mails 2 and 4 were sent once; the model is asked for turn 6 only."""
    served = Served(mailing, tmp_path / "state")
    await served.lose(1, at=5)
    assert mailing.sent == [2, 4]
    ending = await served.attempt(2)
    assert (ending.reason, ending.evaluation.outcome) == ("submitted", 1.0)
    assert mailing.sent == [2, 4, 6] and served.asked == [11] and served.started == [False, True]
    assert (ending.snapshots, ending.external_calls, ending.rollback_turns) == (3, 2, 0)
    assert re.fullmatch(r"snapshot:[0-9a-f]{64} responses:sha256:[0-9a-f]{64}", served.made_of), (
        "what it went on from (C11)"
    )


@pytest.mark.parametrize("every", [1, 2, 3, 100])
async def test_wherever_it_is_lost_once_or_twice_the_world_comes_out_the_same(mailing, tmp_path, monkeypatch, every):
    """With a snapshot every 1, 2, 3 or 100 turns, lost in each step that writes, and again in the same one or the next such: each mail once, each
    line once, in order."""
    monkeypatch.setattr(Spacing, "is_due", lambda self, turns: turns >= every)
    for first in (1, 3, 5):
        for second in (first, first + 2):
            mailing.sent.clear()
            served = Served(mailing, tmp_path / f"state{first}{second}")
            await served.lose(1, at=first)
            if second <= 5:
                await served.lose(2, at=second)
            ending = await served.attempt(3)
            assert (ending.reason, ending.evaluation.outcome, mailing.sent) == ("submitted", 1.0, [2, 4, 6])
            assert served.started[1:] == [True] * (len(served.started) - 1)


async def test_a_call_outside_that_was_under_way_is_not_made_again(mailing, tmp_path):
    """Lost while mail 4 was being sent: nobody knows whether it was, the model is told so, and goes on."""
    served = Served(mailing, tmp_path / "state")
    await served.lose(1, at=4)
    ending = await served.attempt(2)
    assert ending.reason == "submitted" and mailing.sent == [2, 6]
    assert served.chat.requests[0]["messages"][-1]["content"].startswith(
        "error: the process was lost while this call was under way"
    )


async def test_going_back_inside_an_attempt_sends_nothing_twice(mailing, monkeypatch):
    """A snapshot after turn 3; step 5 breaks once. Mail 4 is answered from memory, without any record on disk."""
    monkeypatch.setattr(Spacing, "is_due", lambda self, turns: turns >= 3)
    broken = [5]

    async def step(self, call, real=Mailing.step):
        if call.arguments["n"] in broken:
            broken.remove(call.arguments["n"])
            raise Rollback("the disk is gone")
        return await real(self, call)

    mailing.step = step
    served = Served(mailing, None)
    ending = await served.attempt(1, shelf=Shelf())
    assert (ending.evaluation.outcome, mailing.sent, ending.rollback_turns) == (1.0, [2, 4, 6], 2)
    assert len(served.asked) == 6


async def test_what_was_lost_twice_goes_on_twice_and_keeps_its_turns(mailing, tmp_path):
    """Lost in steps 3 and 5 of six: the third attempt asks only for turn 6, with the history of five turns, and six
    turns are enough for all three."""
    served = Served(mailing, tmp_path / "state")
    await served.lose(1, at=3)
    await served.lose(2, at=5)
    assert served.asked == [7, 9], "turn 3's reply is on record"
    ending = await served.attempt(3, turns_max=6)
    assert (ending.reason, ending.evaluation.outcome) == ("submitted", 1.0)
    assert mailing.sent == [2, 4, 6] and served.asked == [11] and served.started == [False, True, True]


async def test_turns_of_lost_attempts_count(mailing, tmp_path):
    """Five turns are on record when the limit is five: what is repeated is carried out, and nothing is asked any more."""
    served = Served(mailing, tmp_path / "state")
    await served.lose(1, at=5)
    ending = await served.attempt(2, turns_max=5)
    assert (ending.ending, ending.reason, served.asked) == ("timed_out", "turns", [])


async def test_after_an_ending_the_next_attempt_is_a_new_one(mailing, tmp_path):
    """C3: a resample, in a new world, with every mail sent again; and the store holds nothing any more."""
    served = Served(mailing, tmp_path / "state")
    for number in (1, 2):
        assert (await served.attempt(number)).reason == "submitted"
    assert mailing.sent == [2, 4, 6] * 2 and served.started == [False, False]
    shelf = Shelf(tmp_path / "state")
    assert shelf.store().referred("g0-e0") == []


async def test_a_snapshot_that_does_not_come_back_is_a_new_beginning(mailing, tmp_path):
    """Its files were lost: the half restored world is closed, a new one is built, and the attempt is no replay."""
    served = Served(mailing, tmp_path / "state")
    await served.lose(1, at=5)
    for path in (tmp_path / "state" / "snapshots" / "objects").glob("*/*"):
        path.unlink()
    ending = await served.attempt(2)
    assert (ending.reason, ending.evaluation.outcome, served.started) == ("submitted", 1.0, [False, False])
    assert len(served.asked) == 6


async def test_a_damaged_record_is_set_aside(mailing, tmp_path):
    served = Served(mailing, tmp_path / "state")
    await served.lose(1, at=5)
    tape = tmp_path / "state" / "records" / "g0-e0.tape"
    tape.write_bytes(tape.read_bytes().replace(b"write", b"wrote", 1))
    assert (await served.attempt(2)).reason == "submitted" and served.started == [False, False]
    assert tape.with_suffix(".damaged").exists()


async def test_a_world_without_files_is_built_anew_and_its_turns_repeated(mailing, tmp_path):
    """No workspace, no snapshot: everything random follows from the seed, so what `reset` makes and the same calls lead to the same world."""

    class Memory(mailing):
        def reset(self):
            super().reset()
            self.log, self.workspace = [], None
            return [{"role": "user", "content": "write and mail"}]

        async def step(self, call):
            if call.name == "write" and call.arguments["n"] != self.hangs_at:
                self.log.append(call.arguments["n"])
                return StepResult(content="ok")
            return await super().step(call)

        def score(self):
            return Score(outcome=float(self.log == [1, 3, 5]))

    served = Served(Memory, tmp_path / "state")
    await served.lose(1, at=5)
    ending = await served.attempt(2)
    assert (ending.evaluation.outcome, Memory.sent, served.asked, ending.snapshots) == (1.0, [2, 4, 6], [11], 0)


def fifth_mails(text: str):
    """A model whose fifth turn mails `text` and whose sixth writes."""

    def answer(body, n):
        reply = act(body, n)
        if reply["tool_calls"][0]["id"] == "c5":
            reply["tool_calls"][0]["function"] = {"name": "mail", "arguments": json.dumps({"n": 5, "text": text})}
        if reply["tool_calls"][0]["id"] == "c6":
            reply["tool_calls"][0]["function"]["name"] = "write"
        return reply

    return answer


@pytest.mark.parametrize(("text", "reason"), [("password=hunter22", "submitted"), ("hello", "environment_error")])
async def test_a_redacted_reply_is_asked_for_anew_and_must_agree_with_what_was_sent(mailing, tmp_path, text, reason):
    """Reply 5 cannot be repeated, as its secret is not on record. The same call again is answered from the record; another one is refused, for
    the world has seen the first."""
    served = Served(mailing, tmp_path / "state")
    await served.lose(1, at=6, answer=fifth_mails("password=hunter22"))
    assert b"hunter22" not in (tmp_path / "state" / "records" / "g0-e0.tape").read_bytes()
    ending = await served.attempt(2, answer=fifth_mails(text))
    assert ending.reason == reason and mailing.sent[:3] == [2, 4, 5] and mailing.sent.count(5) == 1
    if reason == "environment_error":
        assert "replay_departed: call 5 departs from the record: recorded mail(" in ending.detail
        assert "[redacted]" in ending.detail and "hello" in ending.detail and ending.evaluation is None


async def test_what_is_not_shown_is_not_recorded(mailing, tmp_path):
    """Bad input: ten megabytes from a tool are a thousand bytes for the model, and no more on record."""

    async def step(self, call, real=Mailing.step):
        result = await real(self, call)
        return StepResult(content="x" * 10**7, done=result.done)

    mailing.step = step
    assert (await Served(mailing, tmp_path / "state").attempt(1)).reason == "submitted"
    assert (tmp_path / "state" / "records" / "g0-e0.tape").stat().st_size < 40_000


def test_records_need_a_folder():
    with pytest.raises(InvalidInput, match="GYRE_ENVIRONMENT_STATE"):
        Shelf(None, Redactor())
    with pytest.raises(InvalidInput, match="/dev/null/x: Not a directory"):
        Shelf(Path("/dev/null/x"))

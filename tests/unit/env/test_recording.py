"""The record of tool calls and answering from it (C4)."""

import asyncio
import fcntl
import os
import signal

import pytest

from gyre.env import StepResult, ToolCall
from gyre.env.recording import Called, Departed, Journal, RecordDamaged, Redactor, Tape
from gyre.env.recording.entries import Checkpoint, Over
from gyre.env.recording.journal import UNKNOWN
from gyre.env.recording.tape import drop
from gyre.errors import Conflict

OUTSIDE = frozenset({"search", "mail"})


def asked(name: str, **arguments) -> ToolCall:
    return ToolCall(call_id="c", name=name, arguments=arguments)


def world(*contents: str):
    """A `carry_out` that answers these, one after the other, and `made`, how many it answered."""
    left = list(contents)

    async def carry_out():
        carry_out.made += 1
        return StepResult(content=left.pop(0))

    carry_out.made = 0
    return carry_out


def open_tape(tmp_path) -> Tape:
    return Tape(tmp_path / "e0.tape", Redactor(), sync=False)


async def an_attempt(tmp_path) -> None:
    """A checkpoint, a turn with a call inside and one outside, a second turn with one outside; then the process is lost."""
    journal = Journal(open_tape(tmp_path), OUTSIDE)
    journal.begin("e0-a1", is_replay=False)
    journal.keep(Checkpoint(ordinal=0, turn=0, messages="[]"))
    journal.said({"role": "assistant", "content": "one"}, 1)
    outside = world("found", "sent")
    await journal.call(asked("write", path="x"), world("written"))
    await journal.call(asked("search", q="a"), outside)
    journal.said({"role": "assistant", "content": "two"}, 2)
    await journal.call(asked("mail", to="b", text="c"), outside)
    journal.close()


async def test_the_next_attempt_says_the_same_and_calls_nothing_outside_twice(tmp_path):
    """Replies and outside calls come from the record, the call inside is carried out again; then everything is new."""
    await an_attempt(tmp_path)
    journal = Journal(open_tape(tmp_path), OUTSIDE)
    assert journal.checkpoint is not None and not journal.is_over
    journal.begin("e0-a2", is_replay=True)
    assert journal.turns_before == 2
    inside, outside = world("written"), world("new")
    assert journal.next_reply().message["content"] == "one"
    assert (await journal.call(asked("write", path="x"), inside)).content == "written"
    assert (await journal.call(asked("search", q="a"), outside)).content == "found"
    assert journal.next_reply().message["content"] == "two" and journal.repeats
    assert (await journal.call(asked("mail", text="c", to="b"), outside)).content == "sent"
    assert journal.next_reply() is None and not journal.repeats
    assert (inside.made, outside.made) == (1, 0)
    journal.said({"role": "assistant", "content": "three"}, 1)
    assert (await journal.call(asked("search", q="z"), outside)).content == "new"
    journal.close()
    third = Journal(open_tape(tmp_path), OUTSIDE)
    third.begin("e0-a3", is_replay=True)
    assert (third.turns_before, third.calls) == (3, 4)


async def test_a_replay_that_departs_is_refused_with_the_difference(tmp_path):
    """Call 2 was search(q=a): another name, and other arguments, say what was recorded, what was asked, and where."""
    await an_attempt(tmp_path)
    journal = Journal(open_tape(tmp_path), OUTSIDE)
    journal.begin("e0-a2", is_replay=True)
    with pytest.raises(Departed) as refused:
        await journal.call(asked("search", q="b"), world("never"))
    assert str(refused.value) == (
        'call 2 departs from the record: recorded search({"q": "a"}), asked search({"q": "b"}); '
        "they differ from character 8 of the arguments on"
    )
    with pytest.raises(Departed, match=r"recorded search\(.*asked mail\("):
        await journal.call(asked("mail", to="b"), world("never"))


@pytest.mark.parametrize(("raised", "known"), [(OSError("away"), False), (asyncio.CancelledError(), True)])
async def test_a_call_that_raised_may_be_made_again_one_that_was_lost_may_not(tmp_path, raised, known):
    """An exception is the environment's word that it knows; a cancellation, like a kill, leaves open whether the world has seen the call."""
    journal = Journal(open_tape(tmp_path), OUTSIDE, quota=5)
    journal.begin("e0-a1", is_replay=False)
    journal.keep(Checkpoint(ordinal=0, turn=0, messages="[]"))

    async def broken():
        raise raised

    with pytest.raises(type(raised)):
        await journal.call(asked("search", q="a"), broken)
    journal.close()
    again, outside = Journal(open_tape(tmp_path), OUTSIDE, quota=5), world("found")
    again.begin("e0-a2", is_replay=True)
    result = await again.call(asked("search", q="a"), outside)
    assert (result.content, result.error) == ((UNKNOWN, True) if known else ("found", False))
    assert (outside.made, again.calls, again.quota_left) == (int(not known), 1, 4)


async def test_every_call_is_on_record_with_its_time_and_the_quota_left(tmp_path):
    """Two calls outside are allowed: 1 and 0 are left after them, the third is refused in words and not carried out; calls inside are free."""
    journal = Journal(open_tape(tmp_path), OUTSIDE, quota=2)
    journal.begin("e0-a1", is_replay=False)
    outside = world("1", "2", "3")
    for _ in range(2):
        await journal.call(asked("search", q="a"), outside)
    refused = await journal.call(asked("search", q="a"), outside)
    await journal.call(asked("write"), world("ok"))
    assert refused.error and "quota of 2" in refused.content and outside.made == 2
    journal.close()
    calls = [entry for entry in open_tape(tmp_path).entries if isinstance(entry, Called)]
    assert [(call.ordinal, call.name, call.quota_left) for call in calls] == [
        (1, "search", 1),
        (2, "search", 0),
        (3, "write", 0),
    ]
    assert all(call.at_s > 0 and call.took_s >= 0 for call in calls)
    assert Journal(open_tape_again(tmp_path), OUTSIDE, quota=2).quota_left == 0, (
        "the next attempt has no more than this one had"
    )


def open_tape_again(tmp_path) -> Tape:
    (tmp_path / "copy").mkdir()
    (tmp_path / "copy" / "e0.tape").write_bytes((tmp_path / "e0.tape").read_bytes())
    return open_tape(tmp_path / "copy")


async def test_what_the_model_is_shown_is_what_is_on_record(tmp_path):
    """A secret in a result: the model sees the mask, so that a replay shows it the same text; a redacted reply is asked for anew."""
    journal = Journal(open_tape(tmp_path), OUTSIDE)
    journal.begin("e0-a1", is_replay=False)
    journal.keep(Checkpoint(ordinal=0, turn=0, messages="[]"))
    journal.said({"role": "assistant", "content": "use password=hunter22"}, 1)
    shown = await journal.call(asked("search", api_key="hunter22"), world("password=hunter22 ok"))
    assert shown.content == "[redacted] ok"
    journal.close()
    assert b"hunter22" not in (tmp_path / "e0.tape").read_bytes()
    again = Journal(open_tape(tmp_path), OUTSIDE)
    again.begin("e0-a2", is_replay=True)
    assert again.next_reply() is None and again.turns_before == 1
    assert (await again.call(asked("search", api_key="hunter22"), world("never"))).content == "[redacted] ok"


async def test_an_ended_execution_and_a_new_world_repeat_nothing(tmp_path):
    await an_attempt(tmp_path)
    journal = Journal(open_tape(tmp_path), OUTSIDE)
    journal.begin("e0-a2", is_replay=False)
    assert journal.next_reply() is None and journal.calls == 0 and not journal.repeats
    journal.over("submitted")
    journal.close()
    assert Journal(open_tape(tmp_path), OUTSIDE).is_over


# -- the file


async def test_a_file_cut_at_any_byte_opens_with_what_was_whole(tmp_path):
    """What `kill -9` or a full disk can leave: a prefix. Its whole lines are there, the torn one is cut off, and it can be written on."""
    await an_attempt(tmp_path)
    data = (tmp_path / "e0.tape").read_bytes()
    ends = [at + 1 for at, byte in enumerate(data) if byte == ord("\n")]
    for length in range(0, len(data) + 1, 7):
        path = tmp_path / f"cut{length}.tape"
        path.write_bytes(data[:length])
        tape = Tape(path, Redactor(), sync=False)
        whole = sum(end <= length for end in ends)
        assert len(tape.entries) == whole
        tape.append(Checkpoint(ordinal=9, turn=0, messages="[]"))
        tape.close()
        tape = Tape(path, Redactor(), sync=False)
        assert len(tape.entries) == whole + 1
        tape.close()


async def test_damage_in_the_middle_is_not_taken_for_a_torn_end(tmp_path):
    await an_attempt(tmp_path)
    data = bytearray((tmp_path / "e0.tape").read_bytes())
    data[data.index(b"\n") + 30] ^= 1
    (tmp_path / "e0.tape").write_bytes(data)
    with pytest.raises(RecordDamaged, match="line 2"):
        open_tape(tmp_path)


def test_only_one_process_writes_a_record(tmp_path):
    tape = open_tape(tmp_path)
    with pytest.raises(Conflict, match="older attempt"):
        open_tape(tmp_path)
    tape.close()
    open_tape(tmp_path).close()


def test_nobody_writes_to_a_record_that_was_removed_while_he_opened_it(tmp_path, monkeypatch):
    """The attempt before is over between our opening the file and our locking it: what we wrote would be lost with us."""
    before, lock = [open_tape(tmp_path)], fcntl.flock

    def late(file, how):
        for tape in before:
            tape.remove()
            tape.close()
        before.clear()
        lock(file, how)

    monkeypatch.setattr(fcntl, "flock", late)
    after = open_tape(tmp_path)
    after.append(Over(reason="stopped", at_s=0.0))
    after.close()
    assert [type(entry) for entry in open_tape(tmp_path).entries] == [Over]


def test_a_record_that_nobody_has_any_more_is_not_locked(tmp_path):
    """Whoever opened it was cancelled meanwhile."""
    open_tape(tmp_path)
    open_tape(tmp_path).close()


def test_an_old_record_goes_but_for_one_that_is_in_use(tmp_path):
    path = tmp_path / "e0.tape"
    tape = open_tape(tmp_path)
    os.utime(path, (0, 0))
    drop(path, 60.0)
    assert path.exists(), "its execution was suspended for long"
    tape.close()
    drop(path, 1e12)
    assert path.exists()
    drop(path, 60.0)
    drop(path, 60.0)
    assert not path.exists()


def test_a_process_killed_while_it_writes_leaves_a_record_that_opens(tmp_path):
    """A child writes entries until it is killed by SIGKILL; twenty of them went through a pipe before, so they are there."""
    reading, writing = os.pipe()
    if (child := os.fork()) == 0:
        try:
            tape = open_tape(tmp_path)
            for ordinal in range(1_000_000):
                tape.append(Called(ordinal=ordinal, name="n", arguments="{}", arguments_digest="", content="x" * 5000))
                os.write(writing, b".")
        finally:
            os._exit(0)
    done = 0
    while done < 20:
        done += len(os.read(reading, 20 - done))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    entries = open_tape(tmp_path).entries
    assert len(entries) >= 20 and [entry.ordinal for entry in entries] == list(range(len(entries)))

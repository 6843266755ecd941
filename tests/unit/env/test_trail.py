"""An agent's trail by itself, without an agent (C4)."""

import asyncio
import os
import threading
from pathlib import Path

import pytest

from gyre.env import shelf, trail
from gyre.env.recording import Redactor, Tape
from gyre.env.shelf import Shelf
from gyre.env.snapshots import Series
from gyre.env.snapshots.objects import Objects
from gyre.env.snapshots.spacing import Spacing
from gyre.env.trail import Trail
from tests.support import until

EXECUTION = "g0-e0"


@pytest.fixture
def tree(tmp_path, monkeypatch) -> Path:
    monkeypatch.setattr(trail, "SETTLE_S", 0.0)
    monkeypatch.setattr(Spacing, "interval_turns", lambda self: 1)
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "notes").write_text("as reset left it")
    return tmp_path / "tree"


async def begun(state: Path, tree: Path) -> Trail:
    """Of an agent that had one call answered: with the next a snapshot is due."""
    made = await Shelf(state).trail(EXECUTION, f"{EXECUTION}-a1", Spacing())
    made.begin(tree, str(tree.parent))
    made.follow(lambda: 0.0, lambda: 0, 50)
    made.answered()
    return made


async def test_a_call_waits_for_a_snapshot_also_where_the_one_that_it_was_taken_for_was_given_up(
    tmp_path, tree, monkeypatch
):
    """A harness that asks again would be answered, and would act, in the middle of it."""
    may, take = threading.Event(), Series.take
    made = await begun(tmp_path / "state", tree)

    def slow(self, tree, is_at_once=False):
        may.wait(60.0)
        return take(self, tree, is_at_once)

    monkeypatch.setattr(Series, "take", slow)
    given_up = asyncio.ensure_future(made.between(True))
    await asyncio.wait([given_up], timeout=0.05)
    given_up.cancel()
    again = asyncio.ensure_future(made.between(True))
    await asyncio.wait([again], timeout=0.05)
    assert not again.done()
    may.set()
    await again
    assert made.ordinal == 2
    await made.rest()
    made.close(is_over=False)


async def test_a_trail_is_waited_for_longer_than_the_attempt_before_takes_to_end(tmp_path, monkeypatch):
    """Its agent has a grace to end in, and a snapshot of it may be under way: who did not wait would begin anew."""
    monkeypatch.setattr(shelf, "TAPE_S", 0.0)
    monkeypatch.setattr(shelf, "TAPE_POLL_S", 0.01)
    before = Tape(tmp_path / "records" / f"{EXECUTION}.trail", Redactor())
    waiting = asyncio.ensure_future(Shelf(tmp_path).trail(EXECUTION, f"{EXECUTION}-a2", Spacing()))
    await asyncio.wait([waiting], timeout=0.1)
    before.close()
    (await waiting).close(is_over=False)


async def test_what_snapshots_wrote_that_came_to_nothing_is_collected(tmp_path, tree, monkeypatch):
    """An agent whose files change all the time would fill the disk with contents that nobody refers to."""
    monkeypatch.setattr(shelf, "COLLECT_BYTES", 5_000)
    keep = Objects.keep

    def changing(self, source, size, part):
        kept = keep(self, source, size, part)
        (tree / "changing").write_bytes(os.urandom(2_000))
        return kept

    made = await begun(tmp_path / "state", tree)
    (tree / "changing").write_bytes(os.urandom(2_000))
    monkeypatch.setattr(Objects, "keep", changing)
    await made.between(True)
    assert made.said() == {"taken": 1, "failed": 1}
    objects = tmp_path / "state" / "snapshots" / "objects"
    await until(lambda: len(list(objects.glob("*/*"))) == 2)  # file and listing of the first snapshot
    made.close(is_over=False)


async def test_an_agent_that_has_made_its_turns_may_ask_for_a_count(tmp_path, tree):
    """It is not ended for that, and none of its calls is held up until one would be the next turn."""
    (await begun(tmp_path / "state", tree)).close(is_over=False)
    made = await begun(tmp_path / "state", tree)
    made.turns_before = 49
    await made.between(True, is_turn=False)
    assert not made.is_spent
    spent = asyncio.ensure_future(made.between(True))
    await asyncio.wait([spent], timeout=0.05)
    assert made.is_spent and not spent.done()
    spent.cancel()
    await made.rest()
    made.close(is_over=False)


async def test_nobody_waits_while_the_store_is_tidied(tmp_path, tree, monkeypatch):
    """It may take as long as others take snapshots; an execution has but the gateway's grace to be judged in."""
    may = threading.Event()
    monkeypatch.setattr(Shelf, "_wrote", lambda self: may.wait(60.0))
    made = await begun(tmp_path / "state", tree)
    await made.between(True)
    resting = asyncio.ensure_future(made.rest())
    await asyncio.wait([resting], timeout=5.0)
    is_over = resting.done()
    may.set()
    await resting
    assert is_over
    made.close(is_over=False)

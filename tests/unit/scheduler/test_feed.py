"""The scheduler's side of the bus, with a bus that only counts."""

from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from gyre.errors import GaveUp
from gyre.records import GroupDispatched, TaskDispatched
from services.scheduler import bus as shell
from services.scheduler.bus import PUBLISHES_AT_ONCE, Feed
from services.scheduler.core import Settings, State, apply, decide
from services.scheduler.core import dispatch as core
from tests.unit.scheduler import facts

SETTINGS = Settings(
    cells=1, cell_capacity=8, groups_per_step=1, steps_per_publish=1, extra_depth_steps=0.0, evaluation_concurrency_max=10_000
)  # fmt: skip


class Counting:
    """Publishes at once; what was made and is not published yet, at most, stays in `held_max`."""

    def __init__(self, monkeypatch) -> None:
        self.made = self.held_max = 0
        self.sent: list[TaskDispatched] = []
        self.feed: Feed
        make = core.task

        def made(*of):
            self.made += 1
            self.held_max = max(self.held_max, self.made - len(self.sent))
            return make(*of)

        monkeypatch.setattr(core, "task", made)
        monkeypatch.setattr(shell, "task", made)

    async def publish(self, record, traceparent: str = "") -> int:
        if isinstance(record, TaskDispatched):
            self.sent.append(record)
            return 0
        self.feed._fold(record, self.feed.sequence + 1)
        return self.feed.sequence


@pytest.fixture
def counting(monkeypatch):
    """A bus, and the feed of a state in which three groups of 500 wait."""
    made, state = Counting(monkeypatch), State(SETTINGS)
    made.feed = Feed(made, state, lambda state, fact: None)
    for index in range(3):
        apply(state, facts.submitted(index, 500, "evaluation"))
    return made


async def test_messages_are_made_when_their_turn_comes(counting):
    """C1: a payload is in each message of its group, so all of a boundary's at once could fill the memory."""
    decisions = decide(counting.feed.state, 0.0)
    assert sum(isinstance(made, GroupDispatched) for made in decisions) == 3
    await counting.feed.publish(decisions)
    assert len({message.execution_id for message in counting.sent}) == counting.made == 1500
    assert counting.held_max <= PUBLISHES_AT_ONCE


async def test_after_a_restart_what_was_not_leased_is_offered_the_same_way(counting):
    """C6: all but the one that is leased."""
    state = counting.feed.state
    for made in decide(state, 0.0):
        apply(state, made)
    apply(state, facts.leased("g000000-e0"))
    assert await counting.feed.offer_again() == len(counting.sent) == 1499
    assert counting.held_max <= PUBLISHES_AT_ONCE


@pytest.mark.parametrize(
    ("sequence", "first", "is_whole"), [(0, 0, True), (0, 1, True), (0, 2, False), (40, 7, True), (40, 41, True), (40, 50, True)]
)  # fmt: skip
async def test_a_run_whose_first_facts_are_gone_is_not_begun_anew(sequence, first, is_whole, caplog):
    """A state folded from the middle of a run would be none of it: its tasks unknown, no training asked for, and nobody told. With a snapshot it
    goes on, and facts between the two that are gone are told of."""

    class Js:
        async def stream_info(self, name):
            return SimpleNamespace(state=SimpleNamespace(first_seq=first))

    feed = Feed(SimpleNamespace(js=Js()), State(SETTINGS), lambda state, fact: None, sequence)
    with nullcontext() if is_whole else pytest.raises(GaveUp, match=r"facts before 2 were removed .* begin a new run"):
        await feed.check_whole()
    assert ("from 41 to 49" in caplog.text) == (first == 50)

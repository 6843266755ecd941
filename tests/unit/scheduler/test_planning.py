"""The shell around the planner: one question a burst, an answer from another process, a fact; failures change nothing (A9)."""

import asyncio

import msgspec
import pytest

from gyre.clock import ManualClock
from gyre.config import Config
from gyre.errors import Unavailable
from services.scheduler import planning
from services.scheduler.core import Knobs
from services.scheduler.planner import Answer, Question
from services.scheduler.simulator import parse
from services.scheduler.simulator.world import World

TREE = {
    "cluster": {"nodes_per_cell": 1, "slots_per_node": 16.0},
    "scheduler": {
        "mode": "elastic_plus", "cells": 4, "groups_per_step": 4, "group_size": 8, "steps_per_publish": 2, "plan_every_bursts": 1,
    },
}  # fmt: skip
KNOBS = Knobs(steps_per_publish=3, extra_depth_steps=0.0, is_two_way=True)


class FeedDouble:
    def __init__(self, state) -> None:
        self.state = state
        self.told: list = []

    async def tell(self, facts) -> None:
        self.told += facts


@pytest.fixture
def lived(monkeypatch):
    monkeypatch.setattr(planning, "LOOK_S", 0.001)
    world = World(parse(TREE), 1)
    world.until_step(8)
    return FeedDouble(world.state), Config(scheduler=world.spec.scheduler)


async def run(feed, config, bursts: int) -> None:
    """The loop, while so many more bursts open."""
    task = asyncio.ensure_future(planning.plan_for_ever(feed, ManualClock(100.0), config))
    for _ in range(bursts + 1):
        await asyncio.sleep(0.05)
        feed.state.bursts += 1
    await asyncio.sleep(0.05)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_burst_brings_one_question_and_its_answer_becomes_a_fact(lived, monkeypatch):
    """Three bursts in which nothing new is seen: the planner is asked at the first of them only."""
    feed, config = lived
    asked = []

    async def lines_of(module, job, limit_s):
        asked.append(msgspec.msgpack.decode(job, type=Question))
        return [msgspec.json.encode(Answer(knobs=KNOBS, gain=0.05, step_h=1.0, reason="best", candidates=9))]

    monkeypatch.setattr(planning, "lines_of", lines_of)
    await run(feed, config, 2)
    (plan,) = feed.told
    assert (plan.plan, plan.steps_per_publish, plan.is_two_way, plan.predicted_gain, plan.at_s) == (
        1,
        3,
        True,
        0.05,
        100.0,
    )
    assert len(asked) == 1 and asked[0].spec.scheduler.cells == 4


@pytest.mark.parametrize("outcome", [Unavailable("it broke"), []])
async def test_a_plan_that_fails_or_takes_too_long_changes_nothing(lived, monkeypatch, outcome):
    feed, config = lived

    async def lines_of(module, job, limit_s):
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    monkeypatch.setattr(planning, "lines_of", lines_of)
    await run(feed, config, 1)
    assert feed.told == []


async def test_other_modes_are_never_asked(lived, monkeypatch):
    feed, config = lived
    feed.state.settings = msgspec.structs.replace(feed.state.settings, mode="elastic")
    monkeypatch.setattr(planning, "lines_of", None)
    await run(feed, config, 1)
    assert feed.told == []

"""The planner (A9, elastic_plus): candidates keep the promise, the search stays where nothing is better, plans come when something is new."""

import msgspec
import pytest

from services.scheduler.core import Knobs, State
from services.scheduler.planner import Planner, answer, ask, promised_max, staleness_mean
from services.scheduler.planner import search as search_
from services.scheduler.planner.knobs import shapes
from services.scheduler.simulator import parse
from services.scheduler.simulator.world import World

TREE = {
    "cluster": {"nodes_per_cell": 1, "slots_per_node": 12.0, "rebalance": True},
    "workload": {"median_h": 1.0, "sigma": 0.5},
    "training": {"group_node_h": 0.8},
    "scheduler": {
        "mode": "elastic_plus", "cells": 4, "groups_per_step": 2, "group_size": 4, "steps_per_publish": 2, "extra_depth_steps": 0.5,
        "plan_every_bursts": 2,
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def lived() -> World:
    """Forty steps: eighty groups are known."""
    world = World(parse(TREE), 3)
    world.until_step(40)
    return world


def knobs(**changes) -> Knobs:
    return msgspec.structs.replace(Knobs(steps_per_publish=4, extra_depth_steps=0.5), **changes)


def test_every_candidate_has_the_configured_mean_and_no_larger_promised_maximum():
    """s = .5 + 3/2 = 2: μ = 1 … 5 with φ = 2 − (μ − 1)/2, both role rules; ⌈φ⌉ + μ − 1 is 2, 3, 3, 4, 4 and never above 4."""
    found = shapes(knobs())
    assert [(k.steps_per_publish, k.extra_depth_steps) for k in found[::2]] == [
        (1, 2),
        (2, 1.5),
        (3, 1),
        (4, 0.5),
        (5, 0),
    ]
    assert {staleness_mean(k) for k in found} == {2.0}
    assert max(map(promised_max, found)) == 4


def test_a_smaller_promise_excludes_longer_bursts():
    """(3, 0) promises 2 at most with s = 1; (2, .5) promises 2 as well."""
    assert {promised_max(k) for k in shapes(knobs(steps_per_publish=3, extra_depth_steps=0.0))} <= {1, 2}


def test_the_question_has_what_the_facts_say_and_not_what_the_world_knows(lived: World):
    """Group cost .8 node-h and 12 slots; work comes from tokens, within a tenth of the true mean of e^(.125) = 1.13 h (80 groups of 4)."""
    question = ask(lived.state, lived.spec.scheduler)
    assert question.spec.training.group_node_h == pytest.approx(0.8, rel=0.02)
    assert question.spec.cluster.slots_per_node == 12
    assert question.scales[0] == pytest.approx(1.13, rel=0.15)
    assert question.configured.is_two_way is False


def test_nothing_is_asked_before_enough_was_seen():
    world = World(parse(TREE), 3)
    world.until_step(4)
    assert ask(world.state, world.spec.scheduler) is None


def test_an_answer_is_the_same_for_the_same_question_and_keeps_the_mean(lived: World, monkeypatch):
    monkeypatch.setattr(search_, "EXECUTIONS_MAX", 2_000)
    question = ask(lived.state, lived.spec.scheduler)
    found = answer(question)
    assert found == answer(question)
    assert staleness_mean(found.knobs) == pytest.approx(1.0)
    assert found.candidates >= len(shapes(question.configured))


def test_without_a_clear_gain_it_stays_as_configured(lived: World, monkeypatch):
    monkeypatch.setattr(search_, "EXECUTIONS_MAX", 2_000)
    monkeypatch.setattr(search_, "GAIN_MIN", 0.9)
    question = ask(lived.state, lived.spec.scheduler)
    assert answer(question).knobs == question.configured


def test_a_plan_is_asked_for_when_something_is_new(lived: World):
    """At an even burst, and again only after a change of a twelfth or more."""
    state: State = msgspec.structs.replace(lived.state)
    state.bursts = 21
    planner = Planner(lived.spec.scheduler)
    assert planner.due(state) is not None
    assert planner.due(state) is None
    state.pace = msgspec.structs.replace(state.pace, group_cell_s=1.2 * state.pace.group_cell_s)
    assert planner.due(state) is not None
    state.bursts = 22
    assert Planner(lived.spec.scheduler).due(state) is None

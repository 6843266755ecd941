"""The planner (A9, elastic_plus): candidates keep the promise, the search stays where nothing is better, plans come when something is new."""

import msgspec
import pytest

from gyre.records import PlanChosen
from services.scheduler.core import Knobs, State
from services.scheduler.planner import Planner, answer, ask, planner_of, staleness_mean, strict_max
from services.scheduler.planner import search as search_
from services.scheduler.planner.knobs import shapes
from services.scheduler.simulator import changed, merged, parse, simulate
from services.scheduler.simulator.rollout import TOKENS_PER_S
from services.scheduler.simulator.sweep import run_all
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


CAP_STEPS = 2
"""Of age, as (2, .5) has it under strict oldest first."""


def knobs(**changes) -> Knobs:
    return msgspec.structs.replace(Knobs(steps_per_publish=4, extra_depth_steps=0.5), **changes)


def test_every_candidate_has_the_configured_mean_and_can_keep_the_cap():
    """s = .5 + 3/2 = 2: μ = 1 … 5 with φ = 2 − (μ − 1)/2, both role rules; ⌈φ⌉ + μ − 1 is 2, 3, 3, 4, 4 and never above 4."""
    found = shapes(knobs(), 4)
    assert [(k.steps_per_publish, k.extra_depth_steps) for k in found[::2]] == [
        (1, 2),
        (2, 1.5),
        (3, 1),
        (4, 0.5),
        (5, 0),
    ]
    assert {staleness_mean(k, "boundary") for k in found} == {2.0}
    assert max(strict_max(k, "boundary") for k in found) == 4


def test_a_lower_cap_excludes_longer_bursts():
    """Of s = 2 only (1, 2), whose ⌈φ⌉ + μ − 1 is 2, keeps a cap of 2; (2, 1.5) and (3, 1) need 3."""
    assert {k.steps_per_publish for k in shapes(knobs(), 2)} == {1}


def test_the_question_has_what_the_facts_say_and_not_what_the_world_knows(lived: World):
    """Group cost .8 node-h and 12 slots; work comes from tokens, near the true mean of e^(.125) = 1.13 h (80 groups of 4). What makes a plan due is
    counted in tokens themselves, which no fit of the speed under load can move."""
    question = ask(lived.state, lived.spec.scheduler, 1, CAP_STEPS)
    assert question.spec.training.group_node_h == pytest.approx(0.8, rel=0.02)
    assert question.spec.training.age_steps_max == CAP_STEPS
    assert question.spec.cluster.slots_per_node == 12
    work = [hours for group in question.spec.workload.history_h for hours in group]
    assert sum(work) / len(work) == pytest.approx(1.13, rel=0.15)
    assert question.scales == (pytest.approx(1.13 * 3600 * TOKENS_PER_S, rel=0.15), question.spec.training.group_node_h)
    assert question.configured.is_two_way is False


def test_nothing_is_asked_before_enough_was_seen():
    world = World(parse(TREE), 3)
    world.until_step(4)
    assert ask(world.state, world.spec.scheduler, 1, CAP_STEPS) is None


def test_an_answer_is_the_same_for_the_same_question_and_keeps_the_mean(lived: World, monkeypatch):
    monkeypatch.setattr(search_, "EXECUTIONS_MAX", 2_000)
    question = ask(lived.state, lived.spec.scheduler, 1, CAP_STEPS)
    found = answer(question)
    assert found == answer(question)
    assert staleness_mean(found.knobs, "boundary") == pytest.approx(1.0)
    assert found.candidates >= len(shapes(question.configured, CAP_STEPS))


def test_without_a_clear_gain_it_stays_as_configured(lived: World, monkeypatch):
    monkeypatch.setattr(search_, "EXECUTIONS_MAX", 2_000)
    monkeypatch.setattr(search_, "GAIN_MIN", 0.9)
    question = ask(lived.state, lived.spec.scheduler, 1, CAP_STEPS)
    assert answer(question).knobs == question.configured


def test_a_plan_is_asked_for_when_something_is_new(lived: World):
    """At an even burst, and again only after a change of a twelfth or more."""
    state: State = msgspec.structs.replace(lived.state)
    state.bursts = 21
    planner = Planner(lived.spec.scheduler, 1, CAP_STEPS)
    assert planner.due(state) is not None
    assert planner.due(state) is None
    state.pace = msgspec.structs.replace(state.pace, group_cell_s=1.2 * state.pace.group_cell_s)
    assert planner.due(state) is not None
    state.bursts = 22
    assert Planner(lived.spec.scheduler, 1, CAP_STEPS).due(state) is None


def test_plans_that_change_at_every_boundary_never_break_the_cap():
    """C8. Long tails, and groups of one burst length carried into another: under the cap no step shows more than its 2, where without it some do."""

    def restless(state: State, now_s: float) -> PlanChosen:
        burst, depth = ((2, 0.5), (3, 0.0), (1, 1.0))[state.plans % 3]
        return PlanChosen(
            plan=state.plans + 1, steps_per_publish=burst, extra_depth_steps=depth, release_share=0.85, is_two_way=state.plans % 2 == 0,
            order="longest_first", at_s=now_s, predicted_gain=0.0, reason="restless",
        )  # fmt: skip

    tree = merged(TREE, {"workload": {"sigma": 1.4}, "horizon": {"warmup_steps": 0, "steady_steps": 60}})
    capped = merged(tree, {"training": {"age_steps_max": CAP_STEPS}})
    assert simulate(parse(tree), 1, restless).staleness_max > CAP_STEPS
    assert simulate(parse(capped), 1, restless).staleness_max == CAP_STEPS


def test_it_begins_as_the_waterlevel_rule_and_two_way_where_it_never_plans():
    """Where the two-way rule is slower only a plan can know."""
    assert World(parse(TREE), 1).state.knobs.is_two_way is False
    assert World(parse(merged(TREE, {"scheduler": {"plan_every_bursts": 0}})), 1).state.knobs.is_two_way is True


def test_by_tokens_a_shape_is_deepened_until_its_tokens_are_as_stale_as_promised(lived: World):
    """With μ = 1 and φ = 1 weights reach what runs at every step, so tokens are fresher than the promised 1.0 and φ goes up, never beyond what a cap
    of 2 allows. In lockstep tokens are as stale as dispatch; by dispatch nothing is ever deepened."""
    config = msgspec.structs.replace(lived.spec.scheduler, plan_measure="token")
    search = search_._Search(ask(lived.state, config, 1, CAP_STEPS))
    single, lockstep = (
        knobs(steps_per_publish=1, extra_depth_steps=1.0),
        knobs(steps_per_publish=3, extra_depth_steps=0.0),
    )
    deeper = search._deepened(single, 1.0)
    assert 1.0 < deeper.extra_depth_steps <= 2.0
    results = search._runs(deeper, search_.SCREEN_STEPS, [1])
    assert search._staleness(results) == pytest.approx(1.0, abs=0.1)
    assert results[0].staleness_mean > 1.0 and results[0].staleness_max <= CAP_STEPS
    assert search._deepened(lockstep, 1.0) == lockstep
    by_dispatch = search_._Search(ask(lived.state, lived.spec.scheduler, 1, CAP_STEPS))
    assert by_dispatch._deepened(single, 1.0) == single


@pytest.mark.parametrize("depth", [1.0, 1.6, 2.0])
def test_by_tokens_a_finalist_uses_all_that_is_promised(lived: World, monkeypatch, depth: float):
    """Tokens that are .8 φ stale: at a promised 1.28 φ is 1.6, from wherever it comes. By dispatch, in lockstep and as configured nothing moves."""
    config = msgspec.structs.replace(lived.spec.scheduler, plan_measure="token")
    questions = [ask(lived.state, chosen, 1, CAP_STEPS) for chosen in (config, lived.spec.scheduler)]
    for by_tokens, question in zip((True, False), questions, strict=True):
        search = search_._Search(question)
        monkeypatch.setattr(search, "_final", lambda knobs, best_h: [0.8 * knobs.extra_depth_steps])
        monkeypatch.setattr(search, "_staleness", lambda results: results[0])
        begun = knobs(steps_per_publish=1, extra_depth_steps=depth)
        found, results = search._judged(begun, 1.28, 1.0)
        if by_tokens:
            assert results[0] == pytest.approx(1.28, abs=search_.UNUSED_MAX)
            assert found.extra_depth_steps == pytest.approx(1.6, abs=0.02)
        else:
            assert found == begun and bool(results) == (0.8 * depth <= 1.3)
        for fixed in (question.configured, knobs(steps_per_publish=1, extra_depth_steps=0.0)):
            assert search._judged(fixed, 1.28, 1.0)[0] == fixed


def test_release_shares_are_tried_outwards_as_long_as_they_help(lived: World, monkeypatch):
    """From .85 downwards .7 and .55 are faster and .4 is not, so .3 is never simulated; upwards 1.0 is slower."""
    hours = {0.85: 1.0, 0.7: 0.9, 0.55: 0.8, 0.4: 0.85, 0.3: 0.1, 1.0: 1.1}
    search, asked = search_._Search(ask(lived.state, lived.spec.scheduler, 1, CAP_STEPS)), []

    def rank(candidates: list[Knobs], _promise: float) -> list[Knobs]:
        asked.extend(candidates)
        return sorted(candidates, key=lambda one: hours[one.release_share])

    monkeypatch.setattr(search, "_rank", rank)
    found = search._released(knobs(release_share=0.85), 2.0)
    assert [one.release_share for one in found] == [0.85, 0.7, 0.55]
    assert {one.release_share for one in asked} == {0.85, 0.7, 0.55, 0.4, 1.0}


def test_a_simulated_run_of_elastic_plus_has_its_planner(monkeypatch):
    """D15: `gyre simulate` says what the mode does, plans and all; told never to plan it has none, and no other mode has."""
    monkeypatch.setattr(search_, "EXECUTIONS_MAX", 500)
    spec = parse(merged(TREE, {"horizon": {"warmup_steps": 12, "steady_steps": 12}}))
    found = run_all([("run", spec, 1)], processes=1)["run", 1]
    assert found == simulate(spec, 1, Planner(spec.scheduler, 1, CAP_STEPS)) != simulate(spec, 1)
    assert planner_of(changed(spec, plan_every_bursts=0)) is None and planner_of(changed(spec, mode="elastic")) is None

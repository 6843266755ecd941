"""What is sent at a boundary, and in which order (A4, C1)."""

import pytest

from gyre.config import TierConfig
from gyre.records import GroupDispatched, TaskDispatched
from services.scheduler.core import Settings, State, apply, decide
from services.scheduler.core.dispatch import SMOOTHING, in_order
from services.scheduler.core.types import Estimate
from tests.unit.scheduler import facts
from tests.unit.scheduler.world import World

TIERS = (TierConfig(name="short", predicted_s_max=60, concurrency_max=4), TierConfig(name="long"))


def chosen(**changes) -> Settings:
    base = {"cells": 2, "cell_capacity": 8, "groups_per_step": 4, "steps_per_publish": 1, "extra_depth_steps": 0.5}
    return Settings(**{**base, **changes})


def sent(state: State, now_s: float = 0.0) -> list[str]:
    """Groups of one decision, which is folded."""
    decisions = decide(state, now_s)
    for decision in decisions:
        apply(state, decision)
    return [decision.group_id for decision in decisions if isinstance(decision, GroupDispatched)]


def queued(settings: Settings, groups: int, steps: int = 10, **changes) -> State:
    state = State(settings)
    for index in range(groups):
        apply(state, facts.submitted(index, **changes))
    apply(state, facts.started_run(steps))
    return state


def test_nothing_but_evaluations_is_sent_before_training_starts():
    """A4: train tasks wait for the first boundary, evaluations for nobody."""
    state = State(chosen())
    for index, purpose in enumerate(("train", "evaluation", "train")):
        apply(state, facts.submitted(index, purpose=purpose))
    assert sent(state) == ["g000001"]
    assert sent(state) == []


def test_the_first_boundary_sends_phi_plus_mu_steps_of_groups():
    """A4: (φ + μ)·B = 1.5 · 4 = 6 groups, each with all its executions, under policy version 0."""
    state = queued(chosen(), 20)
    decisions = decide(state, 5.0)
    groups = [d for d in decisions if isinstance(d, GroupDispatched)]
    tasks = [d for d in decisions if isinstance(d, TaskDispatched)]
    assert len(groups) == 6 and {group.policy_version for group in groups} == {0}
    assert [task.execution_id for task in tasks[:3]] == ["g000000-e0", "g000000-e1", "g000001-e0"]
    assert len({task.seed for task in tasks}) == len(tasks) == 12
    assert groups[0].queue_wait_s == 5.0
    assert sent(state) and sent(state) == []


def test_the_end_of_a_run_is_not_overfed():
    """A4: two steps of four groups are left, so 8 groups and not (2 + 1)·4 = 12."""
    assert len(sent(queued(chosen(extra_depth_steps=2.0), 50, steps=2))) == 8


def test_fractions_of_groups_are_carried_not_lost():
    """A4: φ .3, B 5: the level aimed at is 6.5 groups; it alternates between 6 and 7, and its mean over 100 boundaries is 6.5."""
    world = World(chosen(groups_per_step=5, extra_depth_steps=0.3))
    world.submit(600)
    world.start(104)
    world.run()
    levels = world.levels[:100]
    assert set(levels) == {6, 7}
    assert sum(levels) / 100 == pytest.approx(6.5, abs=0.01)


def test_what_is_outstanding_already_is_sent_less():
    """A4: 6 groups were sent, the batch took 4, so 2 are outstanding and the next boundary sends 4, under version 1."""
    state = queued(chosen(), 20)
    taken = sent(state)[:4]
    samples = [f"{group}-e{member}-a1" for group in taken for member in range(2)]
    for sample in samples:
        execution = sample.removesuffix("-a1")
        for fact in (facts.leased(execution), facts.running(execution), facts.ended(execution), facts.ready(execution)):
            apply(state, fact)
    for fact in (facts.closed(0, taken, samples), facts.updated(0, samples), facts.published(1)):
        apply(state, fact)
    assert len(sent(state)) == 4
    assert state.groups["g000006"].policy_version == 1


def test_a_batch_that_ran_dry_raises_the_estimate():
    """C5: 4 groups gave 100 of 200 turns: the step wanted 8, and B̂ moves by a part of the difference (SMOOTHING)."""
    state = queued(chosen(), 20)
    apply(state, facts.closed(0, [f"g{index:06d}" for index in range(4)], [], "exhausted", 100, 200))
    apply(state, facts.updated(0, []))
    apply(state, facts.published(1))
    assert state.groups_per_step == pytest.approx(4 + SMOOTHING * 4)


def test_order_is_tier_then_longest_predicted_then_first_come():
    """C1: tiers are listed shortest first; inside one the longest goes first, since the last group decides the burst."""
    state = State(chosen(tiers=TIERS))
    for index, (tier, kind) in enumerate(
        (("long", "big"), ("short", "quick"), ("long", "huge"), ("short", "slow"), ("long", "big"))
    ):
        apply(state, facts.submitted(index, tier=tier, task_type=kind))
    state.estimates = {
        "big": Estimate(1, 100.0), "huge": Estimate(1, 200.0), "quick": Estimate(1, 1.0), "slow": Estimate(1, 5.0)
    }  # fmt: skip
    assert [group.group_id for group in in_order(state, 0.0)] == ["g000003", "g000001", "g000002", "g000000", "g000004"]


def test_waiting_raises_a_group_by_a_tier_at_a_time():
    """C1: a long group that came at 0 s passes short ones from 600 s on: with aging_s 600 it is one tier up, and longer than they are."""
    state = State(chosen(tiers=TIERS, aging_s=600.0))
    apply(state, facts.submitted(0, tier="long", task_type="big"))
    apply(state, facts.submitted(1, tier="short", task_type="quick", at_s=599.0))
    state.estimates = {"big": Estimate(1, 100.0), "quick": Estimate(1, 1.0)}
    assert next(iter(in_order(state, 599.0))).group_id == "g000001"
    assert next(iter(in_order(state, 600.0))).group_id == "g000000"
    apply(state, facts.started_run(10))
    promoted = next(d for d in decide(state, 600.0) if isinstance(d, GroupDispatched))
    assert (promoted.group_id, promoted.promotions) == ("g000000", 1)


def test_no_stream_of_short_tasks_starves_a_long_one():
    """C1: two short groups come for each one sent; the long group of time 0 goes out within tiers · aging_s = 2 · 600 s of it."""
    state = State(chosen(tiers=TIERS, aging_s=600.0, groups_per_step=1, extra_depth_steps=0.0))
    apply(state, facts.submitted(0, size=1, tier="long"))
    now_s, index = 0.0, 1
    while "g000000" in state.queue and now_s < 3000.0:
        for _ in range(2):
            apply(state, facts.submitted(index, size=1, tier="short", at_s=now_s))
            index += 1
        first = in_order(state, now_s)[0]
        del state.queue[first.group_id]
        now_s += 30.0
    assert now_s <= 2 * 600.0


def test_a_tier_sends_no_more_than_its_cap_and_goes_on_as_it_empties():
    """C1: cap 4 executions, groups of 2: two groups of `short` at once, `long` is not held up; the third follows when one has ended."""
    state = State(chosen(tiers=TIERS))
    for index in range(5):
        apply(state, facts.submitted(index, tier="short"))
    apply(state, facts.submitted(5, tier="long"))
    apply(state, facts.started_run(10))
    assert sent(state) == ["g000000", "g000001", "g000005"]
    for execution in ("g000000-e0", "g000000-e1"):
        for fact in (facts.leased(execution), facts.running(execution), facts.ended(execution)):
            apply(state, fact)
    assert sent(state) == ["g000002"]


def test_a_group_larger_than_its_tiers_cap_goes_alone():
    """C1: a cap bounds, it does not lock out: 6 executions under a cap of 4 go when the tier is empty."""
    state = State(chosen(tiers=TIERS))
    apply(state, facts.submitted(0, size=6, tier="short"))
    apply(state, facts.submitted(1, size=2, tier="short"))
    apply(state, facts.started_run(10))
    assert sent(state) == ["g000000"]


def test_starvation_is_told_once_in_its_own_time():
    """C1: two groups stay behind (cap), waited 101 s with the line at 100: one alarm, and not another at the next look."""
    state = queued(chosen(tiers=TIERS, starvation_s=100.0), 4, tier="short")
    sent(state)
    alarms = [decision for decision in decide(state, 101.0) if getattr(decision, "kind", "") == "starvation"]
    assert [alarm.values for alarm in alarms] == [{"groups": 2.0, "wait_s_max": 101.0}]
    apply(state, alarms[0])
    assert not [decision for decision in decide(state, 150.0) if getattr(decision, "kind", "") == "starvation"]

"""What is sent at a boundary, and in which order (A4, C1)."""

import math

import msgspec
import pytest

from gyre.config import TierConfig
from gyre.ids import sample_id
from gyre.records import GroupDispatched
from services.scheduler.core import Settings, State, apply, decide
from services.scheduler.core.boundary import SMOOTHING
from services.scheduler.core.dispatch import annealed, in_order, tasks
from services.scheduler.core.estimate import Estimate
from tests.unit.scheduler import facts
from tests.unit.scheduler.world import World

TIERS = (TierConfig(name="short", predicted_s_max=60, concurrency_max=4), TierConfig(name="long"))


def chosen(**changes) -> Settings:
    base = {"cells": 2, "cell_capacity": 8, "groups_per_step": 4, "steps_per_publish": 1, "extra_depth_steps": 0.5}
    return Settings(**{**base, **changes})


def known(mean_s: float) -> Estimate:
    """Of a task type that always lasts about `mean_s`."""
    return Estimate(executions=100, log_mean=math.log(mean_s), log_variance=1e-6)


def sent(state: State, now_s: float = 0.0) -> list[str]:
    """Groups that are sent now; all that is decided is folded."""
    return [made.group_id for made in facts.settle(state, now_s) if isinstance(made, GroupDispatched)]


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
    groups = [made for made in facts.settle(state, 5.0) if isinstance(made, GroupDispatched)]
    assert len(groups) == 6 and {group.policy_version for group in groups} == {0}
    messages = [message for group in state.groups.values() for message in tasks(state, group)]
    assert [message.execution_id for message in messages[:3]] == ["g000000-e0", "g000000-e1", "g000001-e0"]
    assert len({message.seed for message in messages}) == len(messages) == 12
    assert {message.dispatched_at_s for message in messages} == {5.0} == {group.queue_wait_s for group in groups}
    assert sent(state) == []


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
    state.estimates = {"big": known(10.0), "huge": known(20.0), "quick": known(1.0), "slow": known(5.0)}
    assert [group.group_id for group in in_order(state)] == ["g000003", "g000001", "g000002", "g000000", "g000004"]


def test_waiting_raises_a_group_by_a_class_in_each_aging_time():
    """C1: class = tier + ⌊submitted/aging_s⌋. A long group of 0 s stands behind shorts of its own 600 s, and, being longer, before those after."""
    state = State(chosen(tiers=TIERS, aging_s=600.0))
    apply(state, facts.submitted(0, tier="long", task_type="big"))
    apply(state, facts.submitted(1, tier="short", task_type="quick", at_s=599.0))
    apply(state, facts.submitted(2, tier="short", task_type="quick", at_s=600.0))
    state.estimates = {"big": known(50.0), "quick": known(1.0)}
    assert [group.group_id for group in in_order(state)] == ["g000001", "g000000", "g000002"]
    apply(state, facts.started_run(10))
    promoted = {d.group_id: d.promotions for d in facts.settle(state, 600.0) if isinstance(d, GroupDispatched)}
    assert promoted == {"g000001": 1, "g000000": 1, "g000002": 0}


@pytest.mark.parametrize(("aging_s", "starves"), [(600.0, False), (1e12, True)])
def test_no_stream_of_short_tasks_starves_a_long_one(aging_s, starves):
    """C1: the bound of docs/staleness.md, ⌈(Q + λ·T·aging_s + 1)/n⌉ boundaries; without aging ten times as many are not enough.

    Q = 10 short groups wait before the long one comes, then λ = 5 a minute, and each minute has a boundary that sends n = 4: ⌈(10 + 100 + 1)/4⌉ = 28.
    """
    state = State(chosen(tiers=TIERS, aging_s=aging_s, extra_depth_steps=0.0))
    for index in range(10):
        apply(state, facts.submitted(index, size=1, tier="short"))
    apply(state, facts.submitted(10, size=1, tier="long"))
    apply(state, facts.started_run(1000))
    bound = math.ceil((10 + 5 / 60.0 * len(TIERS) * 600.0 + 1) / 4)
    assert bound == 28
    boundaries = 0
    while "g000010" in state.queue and boundaries < 10 * bound:
        boundaries += 1
        assert len(a_burst(state, 60.0 * boundaries)) == 4
        for index in range(5):
            number = 6 + 5 * boundaries + index
            apply(state, facts.submitted(number, size=1, tier="short", at_s=60.0 * boundaries))
    assert boundaries == 10 * bound if starves else boundaries <= bound


def a_burst(state: State, now_s: float) -> list[str]:
    """Groups of one that are sent at a boundary; they are run, trained and published at once."""
    groups = sent(state, now_s)
    step, samples = state.steps_done, [sample_id(f"{group}-e0", 1) for group in groups]
    for group, sample in zip(groups, samples, strict=True):
        execution = f"{group}-e0"
        for fact in (facts.leased(execution), facts.running(execution), facts.ended(execution), facts.ready(execution)):
            apply(state, fact)
        apply(state, facts.extended(step, group, [sample]))
    for fact in (facts.closed(step, groups, samples), facts.updated(step, samples), facts.published(step + 1, now_s)):
        apply(state, fact)
    return groups


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


@pytest.mark.parametrize("depth", [0.0, 1.0, 2.0])
def test_no_stream_of_small_groups_passes_a_large_one_by_at_its_tiers_cap(depth):
    """C1: a cap of 8 has no room for a group of 8 while anything of its tier runs, and with φ > 0 something always does: it holds the tier until
    there is room. Of 1,200 groups it came as the 41st; what is sent before it is what came before it."""
    world = World(
        chosen(cells=4, cell_capacity=16, extra_depth_steps=depth, tiers=(TierConfig(name="all", concurrency_max=8),), aging_s=1.0)
    )  # fmt: skip
    for groups, size in ((40, 1), (1, 8), (1160, 1)):
        world.submit(groups, size)
    world.start(300)
    world.run()
    sizes = [len(fact.execution_ids) for fact in world.log if isinstance(fact, GroupDispatched)]
    assert sizes.index(8) <= 40 and len(sizes) == 1200 and world.state.steps_done == 300


def test_an_evaluation_that_waits_too_long_is_starved_too():
    """C1: evaluations wait for no training, only for room; one that has not found any for `starvation_s` is told of."""
    state = State(chosen(evaluation_concurrency_max=2, starvation_s=100.0))
    for index in range(3):
        apply(state, facts.submitted(index, 2, "evaluation"))
    facts.settle(state, 1.0)
    raised = [decision for decision in decide(state, 101.0) if getattr(decision, "kind", "") == "starvation"]
    assert [alarm.values for alarm in raised] == [{"groups": 2.0, "wait_s_max": 101.0}]


def test_starvation_is_told_once_in_its_own_time():
    """C1: two groups stay behind (cap), waited 101 s with the line at 100: one alarm, and not another at the next look."""
    state = queued(chosen(tiers=TIERS, starvation_s=100.0), 4, tier="short")
    sent(state)
    alarms = [decision for decision in decide(state, 101.0) if getattr(decision, "kind", "") == "starvation"]
    assert [alarm.values for alarm in alarms] == [{"groups": 2.0, "wait_s_max": 101.0}]
    apply(state, alarms[0])
    assert not [decision for decision in decide(state, 150.0) if getattr(decision, "kind", "") == "starvation"]


def test_the_temperature_of_what_is_trained_falls_along_a_half_cosine_with_the_version_it_is_dispatched_at():
    """D7: from 0.8 to 0.8·0.5 over 10 steps: at 0, 5, 10 and 20 the factor is 1, ½(1 + 0.5) = .75, .5 and .5. An evaluation keeps what it asks for;
    nothing leaves what the trainer can take; without annealing the task is what was submitted."""
    settings, task = (
        chosen(anneal_steps=10, anneal_to=0.5),
        msgspec.structs.replace(facts.submitted(0).task, temperature=0.8),
    )
    drawn = [annealed(task, settings, version).temperature for version in (0, 5, 10, 20)]
    assert drawn == pytest.approx([0.8, 0.6, 0.4, 0.4])
    checked = msgspec.structs.replace(task, purpose="evaluation")
    assert annealed(checked, settings, 10) == checked and annealed(task, chosen(), 10) == task
    assert annealed(task, chosen(anneal_steps=1, anneal_to=1e-9), 1).temperature == 1e-4


def test_a_dispatched_group_is_offered_with_the_temperature_of_its_version():
    """D7: the messages of a group are the same whenever they are made again, though later versions are cooler."""
    state = queued(chosen(anneal_steps=2, anneal_to=0.5), 4)
    (name, *_) = sent(state)
    group = state.groups[name]
    assert [message.task.temperature for message in tasks(state, group)] == [group.task.temperature] * group.size
    later = msgspec.structs.replace(group, policy_version=2)
    assert [message.task.temperature for message in tasks(state, later)] == [0.5 * group.task.temperature] * group.size

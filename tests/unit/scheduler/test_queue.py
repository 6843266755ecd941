"""Who goes next (C1): classes, predictions, tenants; checked against sorting all groups."""

import math
import random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gyre.config import TierConfig
from services.scheduler.core import Settings, State, apply
from services.scheduler.core.dispatch import dispatched, in_order, select
from services.scheduler.core.estimate import Estimate, predicted_group_s
from services.scheduler.core.queue import TENANTS_MAX
from tests.unit.scheduler import facts

TIERS = tuple(TierConfig(name=name) for name in ("short", "middle", "long"))
PLAIN = {"cells": 1, "cell_capacity": 8, "groups_per_step": 4, "steps_per_publish": 1, "extra_depth_steps": 0.0}


def fresh(**changes) -> State:
    return State(Settings(**{**PLAIN, "tiers": TIERS, "aging_s": 100.0, **changes}))


def fill(state: State, rng: random.Random, groups: int) -> None:
    """Groups of every kind, not quite in the order of their times."""
    state.estimates = {f"t{kind}": Estimate(executions=9, log_mean=float(kind)) for kind in range(4)}
    for index in range(groups):
        apply(state, facts.submitted(
            index, size=rng.choice((1, 2, 4)), at_s=index * 5.0 + rng.uniform(0, 40), tier=rng.choice(TIERS).name, task_type=f"t{rng.randrange(5)}"
        ))  # fmt: skip


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10_000), order=st.sampled_from(["longest_first", "submitted"]), gone=st.integers(0, 40))
def test_the_order_is_what_sorting_all_groups_would_give(seed, order, gone):
    """C1: (class, longest group first, first come), with any groups taken out before."""
    rng = random.Random(seed)
    state = fresh(order=order)
    fill(state, rng, 80)
    for name in rng.sample(sorted(state.queue.groups), gone):
        assert state.queue.remove(name) is not None and state.queue.remove(name) is None

    def rank(group):
        longest = predicted_group_s(state.estimates, group.task.task_type, group.task.limits.wall_s, group.size)
        kind = state.settings.tier_index(group.tier) + math.floor(group.submitted_at_s / 100.0)
        return kind, -longest if order == "longest_first" else 0.0, group.submitted_at_s

    # Inside a lane first come goes first, and in a class all groups of a lane are predicted alike, so sorting agrees.
    assert [group.group_id for group in in_order(state)] == [
        g.group_id for g in sorted(state.queue.groups.values(), key=rank)
    ]
    assert len(state.queue) == 80 - gone == sum(state.queue.waiting_by_tier.values())
    assert state.queue.oldest_s == min(group.submitted_at_s for group in state.queue.groups.values())


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_nothing_submitted_a_tier_times_the_aging_time_later_overtakes(seed):
    """C1: the bound of docs/staleness.md: whoever goes before a group was submitted before it or less than 3 · 100 s after it."""
    state = fresh()
    fill(state, random.Random(seed), 120)
    order = list(in_order(state))
    for place, group in enumerate(order):
        assert all(other.submitted_at_s - group.submitted_at_s < 3 * 100.0 for other in order[:place])


def of_tenant(index: int, tenant: str, size: int = 1):
    fact = facts.submitted(index, size)
    return type(fact)(group_id=fact.group_id, task=type(fact.task)(**{
        **{name: getattr(fact.task, name) for name in fact.task.__struct_fields__}, "tenant": tenant}), tier="long", at_s=fact.at_s)  # fmt: skip


@pytest.mark.parametrize(("weight", "expected"), [(1.0, 30), (2.0, 40), (0.5, 20)])
def test_tenants_that_compete_get_work_by_their_weight(weight, expected):
    """C1: of 60 groups of equal work `a` gets weight/(weight + 1); that `b` came first with many does not matter."""
    state = fresh(tenant_weights={"a": weight})
    for index in range(200):
        apply(state, of_tenant(index, "b" if index < 100 else "a"))
    first = [group.task.tenant for group, _ in zip(in_order(state), range(60), strict=False)]
    assert first.count("a") == pytest.approx(expected, abs=1)


def test_a_tenant_that_was_away_saves_up_no_claim():
    """C1: `b` is served 50 groups alone; then `a` comes and shares evenly, it does not catch up."""
    state = fresh()
    for index in range(100):
        apply(state, of_tenant(index, "b"))
    for group, _ in zip(list(in_order(state)), range(50), strict=False):
        state.queue.remove(group.group_id)
        state.queue.charge(group, state.settings, state.estimates)
    for index in range(100, 140):
        apply(state, of_tenant(index, "a"))
    first = [group.task.tenant for group, _ in zip(in_order(state), range(20), strict=False)]
    assert first.count("a") == pytest.approx(10, abs=1)


def test_a_tenant_that_its_tiers_cap_held_back_saves_up_no_claim():
    """C1: the tier of `a` is full while `b` is sent 50 groups; when there is room again they share evenly, `b` is not made to wait for as long."""
    state = fresh(tiers=(*TIERS[:2], TierConfig(name="long", concurrency_max=1)), groups_per_step=10)
    for index in range(100):
        apply(state, of_tenant(index, "a"))
        apply(state, msgspec.structs.replace(of_tenant(100 + index, "b"), tier="short"))
    apply(state, facts.started_run(1000))
    state.need, state.opened_step = 51, 0
    chosen = select(state)
    assert [group.task.tenant for group in chosen].count("a") == 1
    for group in chosen:
        apply(state, dispatched(state, group, 1.0))
    first = [group.task.tenant for group, _ in zip(in_order(state), range(20), strict=False)]
    assert first.count("a") == pytest.approx(10, abs=1)


def test_ever_new_tenants_starve_nobody():
    """C1: `t` has twenty groups; four of ever new tenants, each with one group, come before each boundary of four. One of its is sent in
    three boundaries at least; were newcomers to start where the time of all stands still, none ever would."""
    state = fresh()
    for index in range(20):
        apply(state, of_tenant(index, "t"))
    for boundary in range(20):
        for new in range(4):
            apply(state, of_tenant(100 + 4 * boundary + new, f"n{boundary}-{new}"))
        for group in [group for group, _ in zip(in_order(state), range(4), strict=False)]:
            apply(state, dispatched(state, group, 1.0))
    assert state.queue.waiting_by_tenant["long"]["t"] <= 20 - 20 // 3


def test_a_large_group_costs_its_tenant_as_much_as_its_executions():
    """C1: groups of 4 against groups of 1 at equal weight: one large for each four small."""
    state = fresh()
    for index in range(80):
        apply(state, of_tenant(index, "large" if index % 2 else "small", 4 if index % 2 else 1))
    first = [group.task.tenant for group, _ in zip(in_order(state), range(25), strict=False)]
    assert first.count("large") == pytest.approx(5, abs=1)


def test_one_that_waits_for_ever_does_not_hold_all_that_went_before_it():
    """agent-lightning#438: the oldest group stays (its tier is full), ten thousand others come and go; what is remembered is of what waits."""
    state = fresh()
    apply(state, facts.submitted(0, at_s=0.0))
    for index in range(1, 10_000):
        apply(state, facts.submitted(index, at_s=float(index)))
        state.queue.remove(f"g{index:06d}")
    assert len(state.queue.arrivals) < 200 and state.queue.oldest_s == 0.0


def test_a_tenant_for_each_task_does_not_fill_the_memory():
    """agent-lightning#438: two that wait and compete keep their places; of the others those that were served least are forgotten first."""
    state = fresh()

    def submitted(index: int, tenant: str, size: int = 1):
        fact = facts.submitted(index, size, at_s=float(index))
        return msgspec.structs.replace(fact, task=msgspec.structs.replace(fact.task, tenant=tenant))

    def served(index: int) -> None:
        group = state.queue.remove(f"g{index:06d}")
        state.queue.charge(group, state.settings, state.estimates)

    for index, tenant in enumerate(("waits", "busy", "waits", "busy")):
        apply(state, submitted(index, tenant, 4))
    served(0)
    served(1)
    kept = dict(state.queue.served)
    for index in range(4, 4 + 3 * TENANTS_MAX):
        apply(state, submitted(index, f"t{index}"))
        served(index)
    assert len(state.queue.served) <= TENANTS_MAX + 3
    assert {tenant: state.queue.served[tenant] for tenant in kept} == kept

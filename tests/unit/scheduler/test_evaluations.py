"""Evaluations are bounded in executions, whoever submits them, and training goes on (C1)."""

from collections import Counter

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gyre.errors import Overloaded
from gyre.records import GroupDispatched
from services.scheduler.admission import Admission
from services.scheduler.core import Settings, State, apply, decide
from tests.unit.scheduler import facts
from tests.unit.scheduler.test_modes import MODES, chosen
from tests.unit.scheduler.world import World

SETTINGS = Settings(
    cells=1, cell_capacity=8, groups_per_step=1, steps_per_publish=1, extra_depth_steps=0.0, evaluation_concurrency_max=4, evaluations_max=20
)  # fmt: skip
SHARED = msgspec.structs.replace(SETTINGS, tenant_weights={"a": 2.0, "b": 1.0})
"""Of twenty: ten, five, and five for all others."""


def submitted(index: int, size: int, tenant: str = "a"):
    fact = facts.submitted(index, size, "evaluation")
    return msgspec.structs.replace(fact, task=msgspec.structs.replace(fact.task, tenant=tenant))


def waiting(settings: Settings, *groups: tuple[str, int]) -> State:
    state = State(settings)
    for index, (tenant, size) in enumerate(groups):
        apply(state, submitted(index, size, tenant))
    return state


def sent(state: State) -> list[str]:
    return [made.group_id for made in facts.settle(state, 0.0) if isinstance(made, GroupDispatched)]


def end(state: State, group: str) -> None:
    for name in list(state.groups[group].executions):
        for fact in (facts.leased(name), facts.running(name), facts.ended(name, purpose="evaluation")):
            apply(state, fact)


def admit(state: State, size: int, tenant: str) -> None:
    Admission(state, 0.0).admit(submitted(99, size, tenant).task, "all")


def test_no_more_are_unfinished_than_may_be():
    """Four executions: two groups of two; the next as each ends."""
    state = waiting(SETTINGS, *[("a", 2)] * 5)
    assert sent(state) == ["g000000", "g000001"]
    assert sent(state) == []
    end(state, "g000001")
    assert sent(state) == ["g000002"]


def test_a_group_larger_than_the_bound_goes_alone():
    state = waiting(SETTINGS, ("a", 2), ("a", 9), ("a", 2))
    for group in ("g000000", "g000001", "g000002"):
        assert sent(state) == [group]
        end(state, group)


def test_tenants_take_turns_by_weight():
    """`a` came first with all that it has; of four executions it has its two thirds, rounded."""
    state = waiting(SHARED, *[("a", 1)] * 8, *[("b", 1)] * 8)
    assert Counter(state.groups[group].task.tenant for group in sent(state)) == {"a": 3, "b": 1}
    end(state, "g000000")
    end(state, "g000001")
    assert Counter(state.groups[group].task.tenant for group in sent(state)) == {"a": 2}


def test_a_large_group_has_its_turn_beside_a_tenant_that_always_has_small_ones():
    """Group 1 needs all four places. `a`, whose name sorts first, has another one waiting whenever one ends: what came before goes before it,
    nothing that came later."""
    state = State(SETTINGS)
    order = [("a", 1), ("b", 4), *[("a", 1)] * 6]
    for index, (tenant, size) in enumerate(order):
        fact = submitted(index, size, tenant)
        apply(state, msgspec.structs.replace(fact, at_s=float(index)))
    assert sent(state) == ["g000000"]
    assert sent(state) == []
    end(state, "g000000")
    assert sent(state) == ["g000001"]


def test_executions_are_counted_while_they_wait_and_while_they_run():
    """Twenty in all: eighteen wait or are unfinished, whichever it is."""
    state = waiting(SETTINGS, *[("a", 2)] * 9)
    for _ in range(2):
        with pytest.raises(
            Overloaded, match=r"18 executions of evaluations .* of 20 at most: a group of 2 would be taken"
        ):
            admit(state, 3, "b")
        admit(state, 2, "b")
        sent(state)
    end(state, "g000000")
    admit(state, 3, "b")


def test_those_of_one_request_count_too():
    admission = Admission(State(SETTINGS), 0.0)
    for index in range(10):
        admission.admit(submitted(index, 2).task, "all")
    with pytest.raises(Overloaded, match="there is room when some have ended"):
        admission.admit(submitted(10, 2).task, "all")


def test_with_weights_one_tenant_cannot_take_all():
    state = waiting(SHARED, ("b", 2), ("b", 2))
    with pytest.raises(Overloaded, match=r"tenant `b` has 4 .* of 5 that are its share: a group of 1 would"):
        admit(state, 2, "b")
    admit(state, 1, "b")
    admit(state, 10, "a")
    admit(state, 5, "default")


def test_a_group_larger_than_everything_is_admitted_where_nothing_is():
    """It would be told to come again for ever."""
    admit(State(SHARED), 1024, "b")
    with pytest.raises(Overloaded):
        admit(waiting(SHARED, ("a", 1)), 1024, "b")


@pytest.mark.parametrize("mode", sorted(MODES))
def test_evaluations_without_end_do_not_stop_training(mode):
    """One tenant sends as much as is admitted, for as long as it is trained. Without a bound a burst the cells would have to serve for ever."""
    world = World(chosen(**MODES[mode], evaluation_concurrency_max=6, evaluations_max=40), seed=3)
    world.submit(60)

    lasted_s = []

    def flood() -> None:
        if world.state.steps_done >= 9 or world.now_s > 100:
            lasted_s.append(world.now_s)
            return
        while world.state.evaluations.num_held < 40:
            world.submit(1, 1, purpose="evaluation")
        world.later(0.05, flood)

    world.later(0.0, flood)
    world.start(9)
    world.run()
    assert world.state.steps_done == 9
    assert lasted_s[0] < 60
    assert not world.state.evaluations and not world.state.evaluations.num_unfinished


def test_between_two_boundaries_as_many_are_sent_as_may_be_unfinished():
    """All four end at once, and the fifth waits for the next boundary: else w would never fall."""
    state = waiting(SETTINGS, *[("a", 1)] * 4)
    apply(state, facts.submitted(4, 1))
    apply(state, facts.started_run(2))
    assert len(sent(state)) == 5
    for index in range(4):
        end(state, f"g00000{index}")
    apply(state, submitted(5, 1))
    assert sent(state) == []
    assert state.evaluations.num_waiting == 1


def test_where_nothing_is_trained_evaluations_wait_for_no_boundary():
    """Training was asked for and no task came: there will be no boundary."""
    state = State(SETTINGS)
    apply(state, facts.started_run(2))
    for index in range(9):
        apply(state, submitted(index, 2))
        assert sent(state) == [f"g00000{index}"]
        end(state, f"g00000{index}")


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10_000), mode=st.sampled_from(sorted(MODES)), most=st.integers(1, 12))
def test_what_is_counted_is_what_is_there(seed, mode, most):
    """At every fact of a history: counters against a recount, and the bound."""
    world = World(chosen(**MODES[mode], evaluation_concurrency_max=most), seed=seed)
    for index in range(20):
        world.later(index * 0.3, lambda size=1 + index % 3: world.submit(1, size, purpose="evaluation"))
    world.submit(30)
    world.start(5)
    world.run()
    state = State(world.settings)
    for fact in world.log:
        apply(state, fact)
        held = state.evaluations
        running = [group for group in state.groups.values() if not group.is_trained]
        assert held.num_waiting == sum(group.size for group in held.groups.values()) == sum(held.waiting_of.values())
        assert held.num_unfinished == sum(group.num_active for group in running) == sum(held.unfinished.values())
        assert sorted(held.groups) == sorted(name for mine in held.waiting.values() for name in mine)
        assert held.num_unfinished <= max(most, 3)
    assert not decide(state, world.now_s)

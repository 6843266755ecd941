"""The state travels whole (A2), and commands to executions leave it sound (C2)."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gyre import records as r
from services.scheduler.core import Settings, State, apply, decide, decode_state, encode_state
from tests.unit.scheduler import facts
from tests.unit.scheduler.test_modes import MODES, chosen
from tests.unit.scheduler.world import World


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10_000), mode=st.sampled_from(sorted(MODES)), at=st.floats(0, 1))
def test_a_state_that_was_stored_and_read_goes_on_as_the_first(seed, mode, at):
    """A2: encoded at any point of a history, in any mode; then the same facts give the same decisions at every step and the same state."""
    world = World(chosen(**MODES[mode]), seed=seed, drop_share=0.1)
    world.submit(40)
    world.start(9)
    world.run()
    cut = int(at * len(world.log))
    first = State(world.settings)
    for fact in world.log[:cut]:
        apply(first, fact)
    second = decode_state(encode_state(first))
    assert second == first
    for index, fact in enumerate(world.log[cut:]):
        assert decide(first, index * 0.1) == decide(second, index * 0.1)
        apply(first, fact)
        apply(second, fact)
    assert first == second == world.state


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10_000), mode=st.sampled_from(sorted(MODES)))
def test_all_facts_folded_from_the_stream_at_once_are_the_state_that_lived(seed, mode):
    """A2: in any mode, as they lie on the bus, without a decision between them."""
    world = World(chosen(**MODES[mode]), seed=seed, drop_share=0.1)
    world.submit(20)
    world.submit(5, purpose="evaluation")
    world.start(6)
    world.run()
    recovered = State(world.settings)
    for data in map(r.encode, world.log):
        apply(recovered, r.decode_fact(data))
    assert recovered == world.state and encode_state(recovered) == encode_state(world.state)
    assert recovered.executions_by_state == world.state.executions_by_state != {}


def one_running() -> State:
    state = State(Settings(cells=1, cell_capacity=8, groups_per_step=1, steps_per_publish=1, extra_depth_steps=0.0))
    for fact in (facts.submitted(0, size=2), facts.started_run(2)):
        apply(state, fact)
    facts.settle(state)
    for fact in (facts.leased("g000000-e0"), facts.running("g000000-e0")):
        apply(state, fact)
    return state


def told(kind: type, ordinal: int, attempt: int = 1):
    return kind(execution_id="g000000-e0", group_id="g000000", attempt=attempt, ordinal=ordinal, at_s=0.0)


def test_a_suspended_execution_stays_unfinished_and_obeys_the_newest_command():
    """C2: suspend (1), resume (2), and the first is told again: it runs; w counts it all the time."""
    state = one_running()
    execution = state.groups["g000000"].executions["g000000-e0"]
    apply(state, told(r.ExecutionSuspended, 1))
    assert (execution.state, state.waterlevel) == ("suspended", 2)
    apply(state, facts.running("g000000-e0"))  # a repeat of its start resumes nothing
    assert execution.state == "suspended"
    apply(state, told(r.ExecutionResumed, 2))
    apply(state, told(r.ExecutionSuspended, 1))
    assert (execution.state, execution.obeyed, state.waterlevel, state.refused) == ("running", 2, 2, {})


@pytest.mark.parametrize("was_suspended", [False, True])
def test_a_released_execution_goes_on_as_its_next_attempt(was_suspended):
    """C2: given out again: attempt 2 is leased, attempt 1 says nothing any more, not even that it was suspended."""
    state = one_running()
    if was_suspended:
        apply(state, told(r.ExecutionSuspended, 1))
    apply(state, facts.leased("g000000-e0", 2))
    execution = state.groups["g000000"].executions["g000000-e0"]
    assert (execution.state, execution.attempt) == ("leased", 2)
    apply(state, told(r.ExecutionSuspended, 3, attempt=1))
    apply(state, facts.ended("g000000-e0", 1))
    assert (execution.state, state.fenced, state.waterlevel) == ("leased", 2, 2)


@pytest.mark.parametrize("begun", [True, False])
def test_a_voided_execution_is_finished_and_never_trained(begun):
    """C2: running or still queued; its sample is dropped, and the group goes on without it."""
    state = one_running()
    name = "g000000-e0" if begun else "g000000-e1"
    apply(
        state,
        r.ExecutionCommanded(
            execution_id=name, group_id="g000000", ordinal=1, command="void", by="x", reason="y", at_s=0.0
        ),
    )
    assert state.groups["g000000"].executions[name].commanded == 1
    apply(state, facts.ended(name, 1, "voided"))
    apply(state, facts.dropped(name, 1, "voided"))
    assert (state.waterlevel, state.outstanding_groups, state.executions_by_state["dropped"]) == (1, 1, 1)
    other = "g000000-e1" if begun else "g000000-e0"
    for make in (facts.leased, facts.running, facts.ended, facts.ready):
        apply(state, make(other))
    assert state.ready_groups == 1


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_counters_are_what_counting_would_give(seed):
    """A3: after any prefix of a history with drops, losses and returns of cells, every counter equals a count over the state."""
    rng = random.Random(seed)
    world = World(chosen(), seed=seed, drop_share=0.2)
    world.submit(30)
    world.start(6)
    for _ in range(6):
        cell, capacity = f"cell-{rng.randrange(1, 7)}", rng.choice((0, 3, 6))
        world.later(
            rng.uniform(0, 10),
            lambda cell=cell, capacity=capacity: world.say(
                r.CellReported(cell=cell, capacity=capacity, at_s=world.now_s)
            ),
        )
    world.run()
    state = State(world.settings)
    for fact in world.log[: rng.randrange(len(world.log))]:
        apply(state, fact)
    groups, cells = state.groups.values(), state.cells.values()
    assert state.ready_groups == sum(group.is_trained and group.standing[0] for group in groups)
    assert state.untaken_groups == sum(group.is_trained and group.standing[1] for group in groups)
    assert state.outstanding_groups == sum(group.is_trained for group in groups)
    assert state.waterlevel == sum(group.num_active for group in groups) == sum(state.active_by_tier.values())
    assert sum(state.executions_by_state.values()) == state.dispatched
    assert state.capacity == sum(cell.capacity for cell in cells if cell.is_serving)
    assert set(state.fleet.moving) == {name for name, c in state.cells.items() if not c.is_settled and not c.is_lost}
    assert state.fleet.training == [
        c.position for c in cells if c.kind == "elastic" and c.target == "training" and not c.is_lost
    ]
    assert state.fleet.serving == [c.position for c in cells if c.kind == "elastic" and c.is_serving]
    assert state.fleet.trainers == sum(c.target == "training" and c.is_settled and not c.is_lost for c in cells)

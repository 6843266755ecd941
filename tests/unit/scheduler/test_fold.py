"""Facts into state: attempts, repeats, replays, what is forgotten."""

import math
import random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gyre.records.lifecycle import FINAL, ExecutionState
from services.scheduler.core import Settings, State, apply, decide
from services.scheduler.core.fold import runs
from services.scheduler.core.fold.executions import TYPES_MAX, _learn
from services.scheduler.core.groups import ACTIVE
from tests.unit.scheduler import facts
from tests.unit.scheduler.world import World

CHOSEN = Settings(cells=2, cell_capacity=8, groups_per_step=2, steps_per_publish=1, extra_depth_steps=0.5)


def one_dispatched(purpose: str = "train", size: int = 1) -> State:
    """A state with group g000000 dispatched."""
    state = State(CHOSEN)
    for fact in (facts.submitted(0, size, purpose), facts.started_run(4)):
        apply(state, fact)
    facts.settle(state)
    assert list(state.groups) == ["g000000"]
    return state


def state_of(state: State, execution: str = "g000000-e0") -> ExecutionState:
    return state.groups["g000000"].executions[execution].state


def test_an_older_attempt_changes_nothing():
    """A3: attempt 2 is leased; what attempt 1 still says (a start, an ending, a sample) is counted and moves nothing."""
    state = one_dispatched()
    for fact in (facts.leased("g000000-e0", 1), facts.running("g000000-e0", 1), facts.leased("g000000-e0", 2)):
        apply(state, fact)
    for fact in (facts.running("g000000-e0", 1), facts.ended("g000000-e0", 1), facts.dropped("g000000-e0", 1)):
        apply(state, fact)
    assert state_of(state) == "leased"
    assert (state.fenced, state.waterlevel) == (3, 1)
    apply(state, facts.running("g000000-e0", 2))
    apply(state, facts.ended("g000000-e0", 2))
    assert (state_of(state), state.waterlevel) == ("completed", 0)


def test_a_lease_after_the_ending_revives_nothing():
    """A3: the acknowledgement was lost and the task came again as attempt 2; attempt 1 has ended and is the one that is trained."""
    state = one_dispatched()
    for fact in (facts.leased("g000000-e0"), facts.running("g000000-e0"), facts.ended("g000000-e0")):
        apply(state, fact)
    apply(state, facts.leased("g000000-e0", 2))
    apply(state, facts.dropped("g000000-e0", 2, "duplicate"))
    assert (state_of(state), state.fenced, state.waterlevel) == ("completed", 2, 0)
    apply(state, facts.ready("g000000-e0", 1))
    assert state_of(state) == "ready"


def test_the_same_attempt_leased_again_goes_on_running():
    """A6: its gateway died, its environment did not; the lease is told again and the execution runs on."""
    state = one_dispatched()
    for fact in (facts.leased("g000000-e0"), facts.running("g000000-e0"), facts.leased("g000000-e0")):
        apply(state, fact)
    assert state_of(state) == "running" and state.refused == {}


def test_what_the_table_does_not_allow_is_refused_and_counted():
    """A3: an execution cannot be completed that never started; the refusal is counted by (from, to)."""
    state = one_dispatched()
    apply(state, facts.leased("g000000-e0"))
    apply(state, facts.ended("g000000-e0", ending="completed"))
    assert state_of(state) == "leased"
    assert dict(state.refused) == {"leased->completed": 1}


def test_what_the_trainer_set_aside_is_dropped_with_the_step():
    """C9: two members of a batch, one is trained, one was impossible: the group is over at the update, before the drop is told, so that the boundary
    behind it dispatches as many groups as the law says; its own fact then changes nothing."""
    state = one_dispatched(size=2)
    names = ["g000000-e0", "g000000-e1"]
    for name in names:
        for fact in (facts.leased(name), facts.running(name), facts.ended(name), facts.ready(name)):
            apply(state, fact)
    samples = [f"{name}-a1" for name in names]
    apply(state, facts.extended(0, "g000000", samples))
    apply(state, facts.closed(0, ["g000000"], samples))
    apply(state, msgspec.structs.replace(facts.updated(0, samples[:1]), set_aside={samples[1]: "why"}))
    assert not state.groups and state.outstanding_groups == 0
    assert {kind: count for kind, count in state.executions_by_state.items() if count} == {"trained": 1, "dropped": 1}
    apply(state, facts.dropped("g000000-e1", 1, "untrainable"))
    assert state.outstanding_groups == 0 and state.refused == {}


def test_a_type_for_each_task_does_not_fill_the_memory():
    """agent-lightning#438: durations of the types first seen last."""
    state = one_dispatched()
    for index in range(TYPES_MAX + 10):
        _learn(state, msgspec.structs.replace(facts.ended("g000000-e0"), task_type=f"t{index}", occupancy_s=1.0))
    assert len(state.estimates) == TYPES_MAX and "t9" not in state.estimates and "t10" in state.estimates


def test_a_dropped_duplicate_leaves_its_execution_alone():
    """C9: `duplicate` speaks of a second delivery; the first is still on its way to training."""
    state = one_dispatched()
    for fact in (
        facts.leased("g000000-e0"),
        facts.running("g000000-e0"),
        facts.ended("g000000-e0"),
        facts.ready("g000000-e0"),
    ):
        apply(state, fact)
    apply(state, facts.dropped("g000000-e0", reason="duplicate"))
    assert state_of(state) == "ready" and state.outstanding_groups == 1


def test_a_group_is_forgotten_when_all_its_members_are_final():
    """A4: one member trained, one dropped: nothing is outstanding, and memory holds only what is in flight (agent-lightning#438)."""
    state = one_dispatched(size=2)
    for execution in ("g000000-e0", "g000000-e1"):
        for fact in (facts.leased(execution), facts.running(execution), facts.ended(execution)):
            apply(state, fact)
    apply(state, facts.ready("g000000-e0"))
    apply(state, facts.dropped("g000000-e1"))
    assert state.outstanding_groups == 1
    apply(state, facts.extended(0, "g000000", ["g000000-e0-a1"]))
    apply(state, facts.closed(0, ["g000000"], ["g000000-e0-a1"]))
    apply(state, facts.updated(0, ["g000000-e0-a1"]))
    assert state.outstanding_groups == 0 and state.groups == {} and state.batches == {}
    assert (state.executions_by_state["trained"], state.executions_by_state["dropped"]) == (1, 1)


def test_samples_of_a_batch_without_gradient_are_trained_by_its_step():
    """C10: the update names no sample, since none gave a gradient; those that the batch counted are consumed all the same."""
    state = one_dispatched()
    for fact in (
        facts.leased("g000000-e0"),
        facts.running("g000000-e0"),
        facts.ended("g000000-e0"),
        facts.ready("g000000-e0"),
    ):
        apply(state, fact)
    apply(state, facts.closed(0, ["g000000"], ["g000000-e0-a1"]))
    apply(state, facts.updated(0, []))
    assert state.outstanding_groups == 0


def test_an_evaluation_is_over_when_it_has_ended():
    """A4: evaluations are dispatched at once, count in the waterlevel while they run, and are never outstanding for training."""
    state = State(CHOSEN)
    apply(state, facts.submitted(0, 2, "evaluation"))
    for fact in decide(state, 0.0):
        apply(state, fact)
    assert (state.waterlevel, state.outstanding_groups) == (2, 0)
    for execution in ("g000000-e0", "g000000-e1"):
        for fact in (facts.leased(execution), facts.running(execution), facts.ended(execution, purpose="evaluation")):
            apply(state, fact)
    apply(state, facts.ready("g000000-e0"))
    assert state.waterlevel == 0 and state.groups == {} and state.refused == {}


def test_a_failure_without_any_lease_ends_the_execution():
    """A3: more deliveries than attempts allowed: the gateway ends it as attempt 6 without leasing that attempt."""
    state = one_dispatched()
    apply(state, facts.leased("g000000-e0", 5))
    apply(state, facts.ended("g000000-e0", 6, "failed"))
    assert (state_of(state), state.waterlevel) == ("failed", 0)


def test_the_estimate_follows_the_task_type():
    """C1: the mean logarithm of what ended; failures say nothing about duration."""
    state = one_dispatched(size=3)
    for index, (ending, lasted_s) in enumerate((("completed", 10.0), ("timed_out", 20.0), ("failed", 1.0))):
        for fact in (facts.leased(f"g000000-e{index}"), facts.running(f"g000000-e{index}")):
            apply(state, fact)
        apply(state, facts.ended(f"g000000-e{index}", ending=ending, lasted_s=lasted_s))
    assert state.estimates["repair"].executions == 2
    assert state.estimates["repair"].log_mean == pytest.approx(math.log(10.0 * 20.0) / 2)


def a_run(seed: int) -> World:
    world = World(CHOSEN, seed=seed)
    world.submit(2, purpose="evaluation")
    world.submit(16)
    world.start(7)
    return world.run()


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 1000))
def test_replaying_the_facts_gives_the_same_state(seed):
    """A2: a scheduler that is killed and started again has, by the stream alone, the state it had."""
    world = a_run(seed)
    fresh = State(CHOSEN)
    for fact in world.log:
        apply(fresh, fact)
    assert fresh == world.state
    assert decide(fresh, world.now_s) == decide(world.state, world.now_s) == []


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 1000))
def test_facts_delivered_again_change_nothing(seed):
    """A3: at-least-once delivery; each fact may come again at any later time."""
    world = a_run(seed)
    rng = random.Random(seed)
    fresh = State(CHOSEN)
    for index, fact in enumerate(world.log):
        apply(fresh, fact)
        for _ in range(rng.randrange(3)):
            apply(fresh, world.log[rng.randrange(index + 1)])
    assert fresh == world.state


@settings(max_examples=150, deadline=None)
@given(
    said=st.lists(
        st.tuples(
            st.sampled_from(["leased", "running", "ended", "failed", "ready", "dropped", "updated"]), st.integers(1, 4)
        )
    )
)
def test_no_order_of_any_attempts_words_breaks_an_execution(said):
    """A3: whatever is said in whatever order, attempts never go back, what is finished stays finished, and counts agree."""
    state = one_dispatched()
    tell = {
        "leased": facts.leased, "running": facts.running, "ended": facts.ended, "ready": facts.ready, "dropped": facts.dropped,
        "failed": lambda e, a: facts.ended(e, a, "failed"), "updated": lambda e, a: facts.updated(0, [f"{e}-a{a}"]),
    }  # fmt: skip
    execution = state.groups["g000000"].executions["g000000-e0"]
    for word, attempt in said:
        before = (execution.state, execution.attempt, state.finished)
        apply(state, tell[word]("g000000-e0", attempt))
        assert execution.attempt >= before[1] and state.finished >= before[2]
        assert (execution.state in ACTIVE) <= (before[0] in ACTIVE)
        assert state.waterlevel == (execution.state in ACTIVE)
        assert (state.outstanding_groups == 0) == (execution.state in FINAL) == (state.groups == {})


def test_tasks_whose_groups_are_over_are_forgotten_oldest_first(monkeypatch):
    """C1: memory does not grow with the run. Three are remembered; task 0 runs on and stays, evaluations 1 to 4 are over when they have ended. The
    next group's index counts all that ever came."""
    monkeypatch.setattr(runs, "TASKS_REMEMBERED", 3)
    state = one_dispatched()
    for index in range(1, 5):
        apply(state, facts.submitted(index, 1, "evaluation"))
        facts.settle(state)
        apply(state, facts.leased(f"g00000{index}-e0"))
        apply(state, facts.running(f"g00000{index}-e0"))
        apply(state, facts.ended(f"g00000{index}-e0", purpose="evaluation"))
    assert sorted(state.group_of_task) == ["task-0", "task-3", "task-4"]
    assert state.num_submitted == 5
    apply(state, facts.submitted(0))
    assert state.num_submitted == 5, "known, as it is not over"

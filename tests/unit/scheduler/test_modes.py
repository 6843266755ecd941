"""One policy, all modes by configuration (A9), driven in the random world."""

import pytest

from gyre.records import BurstOpened, CellReported, PlanChosen, RoleChanged
from services.scheduler.core import Settings, State, apply, decide
from tests.unit.scheduler import facts
from tests.unit.scheduler.world import World

MODES = {
    "elastic": {},
    "elastic, two standalone cells": {"standalone_cells": 2},
    "elastic, full batch": {"streaming": False},
    "elastic, later": {"release_share": 0.7},
    "elastic_plus one way": {"mode": "elastic_plus"},
    "elastic_plus two way": {"mode": "elastic_plus", "is_two_way": True},
    "elastic_plus two way, later": {"mode": "elastic_plus", "is_two_way": True, "release_share": 0.7},
    "elastic_plus two way, full batch": {"mode": "elastic_plus", "is_two_way": True, "streaming": False},
    "async": {"mode": "async", "training_cells": 2},
    "async, full batch": {"mode": "async", "training_cells": 2, "streaming": False},
    "colocate": {"mode": "colocate"},
    "colocate, full batch": {"mode": "colocate", "streaming": False},
    "colocate, two standalone cells": {"mode": "colocate", "standalone_cells": 2},
    "hybrid_switch": {"mode": "hybrid_switch", "standalone_cells": 2},
    "hybrid_switch, no standalone cell": {"mode": "hybrid_switch"},
}


def chosen(**changes) -> Settings:
    base = {"cells": 5, "cell_capacity": 6, "groups_per_step": 4, "steps_per_publish": 2, "extra_depth_steps": 1.0}
    return Settings(**{**base, **changes})


def a_run(settings: Settings, steps: int = 60, **changes) -> World:
    world = World(settings, **changes)
    world.submit(2, purpose="evaluation")
    world.submit(steps * settings.groups_per_step)
    world.start(steps)
    return world.run()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("train_s", [0.005, 0.5])
def test_every_mode_trains_to_the_end_with_nothing_left_over(mode, train_s):
    """A9: whether training or rollout is what takes longer: all steps are done, every group is trained once, every cell that can serves again."""
    world = a_run(chosen(**MODES[mode]), train_s=train_s)
    state = world.state
    assert state.steps_done == state.published_version == 60
    assert (state.waterlevel, state.outstanding_groups, len(state.queue), state.groups) == (0, 0, 0, {})
    assert len(world.staleness) == 240 and state.refused == {} and state.fenced == 0
    assert all(cell.is_serving for cell in state.cells.values() if cell.kind != "training")


@pytest.mark.parametrize("dispatch", ["boundary", "continuous"])
@pytest.mark.parametrize("mode", MODES)
def test_batches_by_turns_stall_no_mode(mode, dispatch):
    """A9, C5: batches that want up to twice what was planned, drops, too few tasks: nothing lies about for ever."""
    world = World(
        chosen(dispatch=dispatch, **MODES[mode]),
        seed=3,
        batch_groups=lambda rng, step: rng.randint(2, 8),
        drop_share=0.1,
    )
    world.submit(150)
    world.start(40)
    world.run()
    assert world.state.waterlevel == 0
    assert world.state.steps_done == 40 or (world.state.outstanding_groups == 0 and not world.state.queue.groups)


def test_a_fixed_split_never_moves():
    """A9: async asks each cell once, training cells straight into training."""
    world = a_run(chosen(mode="async", training_cells=2))
    asked = [
        (fact.cell, fact.target) for fact in world.log if isinstance(fact, RoleChanged) and fact.phase == "requested"
    ]
    assert asked == [(f"cell-{index}", "training" if index < 2 else "rollout") for index in range(5)]


def test_colocated_cells_move_together_and_standalone_ones_never():
    """A9: three of five cells form the pool; every move is of all three."""
    world = a_run(chosen(mode="colocate", standalone_cells=2))
    assert {tuple(names) for names in world.trainers} == {("cell-0", "cell-1", "cell-2"), ()}


def test_without_streaming_a_step_waits_for_its_whole_batch():
    """A9: with three of four groups ready nobody is asked into training; with the fourth the core is."""
    state = State(chosen(streaming=False, steps_per_publish=1, extra_depth_steps=0.0, cell_capacity=20))
    for index in range(8):
        apply(state, facts.submitted(index, size=1))
    apply(state, facts.started_run(2))
    settle(state)
    for index in range(4):
        assert not [cell for cell in state.cells.values() if cell.target == "training"]
        finish(state, f"g{index:06d}-e0")
        settle(state)
    assert state.cells["cell-0"].target == "training"


@pytest.mark.parametrize("streaming", [False, True])
def test_a_pool_does_not_leave_between_the_last_group_of_a_batch_and_the_word_that_it_is_whole(streaming):
    """A9: the two are facts of their own, and whoever decides between them sees nothing ready and nobody serving."""
    state = State(chosen(mode="colocate", streaming=streaming, steps_per_publish=1, cell_capacity=20))
    for index in range(20):
        apply(state, facts.submitted(index, size=1))
    apply(state, facts.started_run(3))
    settle(state)
    for index in range(4):
        finish(state, f"g{index:06d}-e0")
        settle(state)
    assert trainers(state) == 5 and state.waterlevel > 0
    samples = [f"g{index:06d}-e0-a1" for index in range(4)]
    for index, sample in enumerate(samples):
        apply(state, facts.extended(0, f"g{index:06d}", [sample]))
    assert state.ready_groups == 0 and settle(state, 0.5) == [] and trainers(state) == 5
    apply(state, facts.closed(0, [f"g{index:06d}" for index in range(4)], samples))
    assert settle(state, 50.0) == [] and trainers(state) == 5


def settle(state: State, now_s: float = 0.0) -> list:
    """All that is decided, folded; role changes complete at once."""
    made = []
    while decisions := decide(state, now_s):
        for decision in decisions:
            apply(state, decision)
            made.append(decision)
            if isinstance(decision, RoleChanged):
                for phase in ("training",) if decision.target == "training" else ("serving",):
                    apply(state, facts.role(decision.cell, decision.change, decision.target, phase, now_s))
    return made


def finish(state: State, execution: str, at_s: float = 0.0) -> None:
    for make in (facts.leased, facts.running, facts.ended, facts.ready):
        apply(state, make(execution, at_s=at_s))


def two_way(**changes) -> State:
    """Eight groups of one at two steps a burst; four cells of four."""
    plain = {"mode": "elastic_plus", "is_two_way": True, "extra_depth_steps": 0.0, "cells": 4, "cell_capacity": 4}
    state = State(chosen(**{**plain, **changes}))
    for index in range(20):
        apply(state, facts.submitted(index, size=1))
    apply(state, facts.started_run(4))
    settle(state)
    return state


def trainers(state: State) -> int:
    return len(state.fleet.training)


def test_two_way_cells_go_in_with_work_only_and_as_far_as_slots_allow():
    """A3: w 8 of 16 places, nothing ready: nobody trains, though w ≤ C_R − C_e. One group ready: k = 4 − ⌈7/4⌉ = 2."""
    state = two_way()
    assert trainers(state) == 0
    finish(state, "g000000-e0")
    settle(state)
    assert trainers(state) == 2


def test_two_way_cells_come_back_when_there_is_nothing_to_train():
    """A3: the batch is open and its only group is worked off (2 trainers · 10 s > 15 cell-seconds a group): all come back, last first."""
    state = two_way()
    finish(state, "g000000-e0")
    settle(state)
    state.pace.group_cell_s = 15.0
    apply(state, facts.extended(0, "g000000", ["g000000-e0-a1"]))
    assert settle(state, 5.0) == []  # 10 of 15 cell-seconds are done
    back = [(fact.cell, fact.target) for fact in settle(state, 10.0)]
    assert back == [("cell-1", "rollout"), ("cell-0", "rollout")]


def test_two_way_cells_stay_out_for_one_and_a_half_round_trips():
    """A3: hysteresis. Going in and back took 12 s; a cell that came out at 10 s does not go in before 28 s, though work is there at 11 s."""
    state = two_way()
    finish(state, "g000000-e0")
    settle(state)
    state.fleet.switch_s = {"training": [8.5], "rollout": [3.5]}
    state.pace.group_cell_s = 1.0
    apply(state, facts.extended(0, "g000000", ["g000000-e0-a1"]))
    settle(state, 10.0)
    state.fleet.switch_s = {"training": [8.5], "rollout": [3.5]}
    assert trainers(state) == 0
    finish(state, "g000001-e0")
    assert settle(state, 27.9) == []
    settle(state, 28.0)
    assert trainers(state) == 2


def test_a_plan_is_in_force_from_the_next_boundary():
    """A4: μ 2 → 1, φ 0 → .5, ρ 1 → .7 in mid-burst; the open burst ends as it began, the next has one step and (.5 + 1)·4 = 6 groups."""
    state = two_way()
    apply(
        state,
        PlanChosen(
            plan=1,
            steps_per_publish=1,
            extra_depth_steps=0.5,
            release_share=0.7,
            is_two_way=False,
            order="submitted",
            at_s=0.0,
        ),
    )
    assert (state.knobs.steps_per_publish, state.burst_end) == (2, 2)
    for step in (0, 1):
        names = [f"g{index:06d}" for index in range(4 * step, 4 * step + 4)]
        for name in names:
            finish(state, f"{name}-e0")
        samples = [f"{name}-e0-a1" for name in names]
        apply(state, facts.closed(step, names, samples))
        apply(state, facts.updated(step, samples))
    apply(state, facts.published(2))
    (opened,) = decide(state, 0.0)
    assert isinstance(opened, BurstOpened)
    assert (opened.burst, opened.first_step, opened.steps, opened.need_groups) == (1, 2, 1, 6)
    assert (opened.extra_depth_steps, opened.release_share, opened.is_two_way) == (0.5, 0.7, False)
    apply(state, opened)
    assert state.knobs.order == "submitted"


def test_a_lost_cell_counts_for_nothing_in_any_state_and_a_new_one_comes_before_the_standalone_ones():
    """A3: capacities come from reports: lost while serving, moving or training; back again; more or less; new."""
    state = State(chosen(cells=3, standalone_cells=1, cell_capacity=4))
    apply(state, facts.started_run(4))
    settle(state)
    assert state.capacity == 12
    report = lambda cell, capacity: apply(state, CellReported(cell=cell, capacity=capacity, at_s=0.0))  # noqa: E731
    report("cell-1", 0)
    assert (state.capacity, state.fleet.serving) == (8, [0])
    report("cell-1", 6)
    assert (state.capacity, state.fleet.serving) == (14, [0, 1])
    apply(state, facts.role("cell-1", 1, "training", "requested"))
    assert state.fleet.is_moving
    report("cell-1", 0)
    assert not state.fleet.is_moving and state.fleet.training == []
    report("spare", 2)
    assert list(state.cells) == ["cell-0", "cell-1", "spare", "cell-2"]
    assert [fact.cell for fact in decide(state, 0.0)] == ["spare"]
    settle(state)
    assert state.capacity == 4 + 4 + 2


def test_without_its_core_nobody_trains():
    """A3: the core is lost in mid-burst: satellites go back to rollout, where they are of use, and follow it when it is there again."""
    state = State(chosen(cells=3, cell_capacity=4, steps_per_publish=1, extra_depth_steps=0.0))
    for index in range(4):
        apply(state, facts.submitted(index, size=1))
    apply(state, facts.started_run(1))
    settle(state)
    assert trainers(state) == 2
    apply(state, CellReported(cell="cell-0", capacity=0, at_s=1.0))
    assert [(fact.cell, fact.target) for fact in settle(state)] == [("cell-1", "rollout")]
    apply(state, CellReported(cell="cell-0", capacity=4, at_s=2.0))
    assert [(fact.cell, fact.target) for fact in settle(state)] == [("cell-1", "training")]


@pytest.mark.parametrize(("ready", "lends"), [(4, False), (1, True)])
def test_hybrid_trainers_are_lent_while_little_is_ready_and_it_pays(ready, lends):
    """A9: B 4, so fewer than four ready groups lend; 3 groups of 100 s at 4 instead of 2 · 4 at a time, 7 run: 300·(1/4 − 1/7) = 32 s > 12 s."""
    state = State(
        chosen(
            mode="hybrid_switch",
            cells=2,
            standalone_cells=1,
            cell_capacity=4,
            steps_per_publish=1,
            extra_depth_steps=1.0,
        )
    )
    for index in range(20):
        apply(state, facts.submitted(index, size=1))
    apply(state, facts.started_run(4))
    settle(state)
    for index in range(4):
        finish(state, f"g{index:06d}-e0")
    settle(state)
    assert trainers(state) == 1
    state.fleet.switch_s, state.pace.execution_s = {"training": [8.5], "rollout": [3.5]}, 100.0
    for index in range(4, 4 + ready):
        finish(state, f"g{index:06d}-e0")
    state.pace.execution_s = 100.0
    samples = [f"g{index:06d}-e0-a1" for index in range(4)]
    for fact in (facts.extended(0, "g000000", samples), facts.closed(0, [f"g{i:06d}" for i in range(4)], samples)):
        apply(state, fact)
    assert settle(state) == []  # inside a step nobody goes
    for fact in (facts.updated(0, samples), facts.published(1)):
        apply(state, fact)
    settle(state)
    assert (trainers(state) == 0) == lends


def test_hybrid_lends_more_after_idle_steps_and_less_after_calm_ones():
    """A9: r .3, +.05 after two idle steps, −.03 after two calm ones."""
    pace = State(chosen()).pace
    pace.to(0.0, 1)
    for step in range(2):  # a group comes after 10 s of waiting and takes 1 s
        pace.group_cell_s = 1.0
        pace.to(step * 11 + 10.0, 1)
        pace.taken(step * 11 + 10.0)
        pace.updated(step * 11 + 11.0)
    assert pace.lending_ratio == pytest.approx(0.35)
    for step in range(2, 4):
        pace.taken(step * 11.0)
        pace.left_s = 11.0
        pace.updated(step * 11 + 11.0)
    assert pace.lending_ratio == pytest.approx(0.32)


def test_the_cost_of_a_group_is_learned_from_the_tail_of_each_step():
    """A3: groups of 6 cell-seconds, two trainers: they come at 0, 1, 20 s, the last is done at 23 s: 2 · 3 = 6. All at once: 3 · 6/2 = 9 s."""
    pace = State(chosen()).pace
    pace.to(0.0, 2)
    for at_s in (0.0, 1.0, 20.0):
        pace.taken(at_s)
    pace.updated(23.0)
    assert pace.group_cell_s == pytest.approx(6.0)
    for _ in range(3):
        pace.taken(30.0)
    assert pace.left_at_s(33.0) == pytest.approx(12.0)
    pace.to(30.0 + 9.0, 2)
    pace.updated(39.0)
    assert pace.group_cell_s == pytest.approx(6.0)

"""Who trains when (A1–A3, A7, A8)."""

import pytest

from gyre.records import CELL_PHASES, AlarmRaised, BurstOpened, GroupDispatched, RoleChanged
from services.scheduler.core import Settings, State, apply, decide
from tests.unit.scheduler import facts
from tests.unit.scheduler.world import World


def chosen(**changes) -> Settings:
    base = {"cells": 3, "cell_capacity": 4, "groups_per_step": 2, "steps_per_publish": 1, "extra_depth_steps": 1.0}
    return Settings(**{**base, **changes})


def settle(state: State, now_s: float = 0.0) -> list[RoleChanged]:
    """Fold decisions until none is left; each role change completes at once. The requests, in order."""
    requests = []
    while decisions := decide(state, now_s):
        for decision in decisions:
            apply(state, decision)
            if isinstance(decision, RoleChanged):
                requests.append(decision)
                for phase in CELL_PHASES[decision.target][1:]:
                    apply(state, facts.role(decision.cell, decision.change, decision.target, phase))
    return requests


def running(groups: int, **changes) -> State:
    """Started, all cells serving, `groups` groups of 2 queued; the boundary has sent what it sends."""
    state = State(chosen(**changes))
    for index in range(groups):
        apply(state, facts.submitted(index))
    apply(state, facts.started_run(20))
    return state


def finish(state: State, *groups: str, ready: bool = True) -> None:
    for group in groups:
        for execution in list(state.groups[group].executions):
            for fact in (facts.leased(execution), facts.running(execution), facts.ended(execution)):
                apply(state, fact)
            if ready:
                apply(state, facts.ready(execution))


def train(state: State, step: int, *groups: str, publish: bool = True) -> None:
    samples = [f"{execution}-a1" for group in groups for execution in state.groups[group].executions]
    apply(state, facts.closed(step, list(groups), samples))
    apply(state, facts.updated(step, samples))
    if publish:
        apply(state, facts.published(step + 1))
        (opened,) = decide(state, 0.0)
        assert isinstance(opened, BurstOpened)
        apply(state, opened)


def moves(requests: list[RoleChanged]) -> list[tuple[str, str]]:
    return [(request.cell, request.target) for request in requests]


def test_every_cell_is_asked_into_rollout_when_the_run_begins():
    """A1: change 0 for each cell, all at once; asked again only by nobody."""
    state = State(chosen())
    asked = decide(state, 0.0)
    assert [(a.cell, a.change, a.target, a.phase) for a in asked] == [
        (f"cell-{index}", 0, "rollout", "requested") for index in range(3)
    ]
    for request in asked:
        apply(state, request)
    assert decide(state, 0.0) == []


def test_the_core_goes_when_the_others_hold_what_is_unfinished():
    """A3: C_R 12, C_e 4: with w 8 ≤ 12 − 4 the core goes at once, then C_R is 8 and the next needs w ≤ 4, the last w ≤ 0."""
    state = running(10)  # (1 + 1)·2 = 4 groups of 2: w = 8
    assert moves(settle(state))[3:] == [("cell-0", "training")]
    finish(state, "g000000")
    assert settle(state) == []  # w 6
    finish(state, "g000001")
    assert moves(settle(state)) == [("cell-1", "training")]  # w 4
    finish(state, "g000002")
    assert settle(state) == []
    finish(state, "g000003")
    assert moves(settle(state)) == [("cell-2", "training")]


def test_w_above_the_rest_of_the_capacity_keeps_all_cells_serving():
    """A3: capacity 3·3 = 9, w 8 > 6."""
    assert moves(settle(running(10, cell_capacity=3)))[3:] == []


def test_one_cell_does_both_in_turn():
    """A1: K = 1: the core goes only when nothing runs any more (w ≤ 0), and comes back at the publish."""
    state = running(10, cells=1)
    settle(state)
    finish(state, "g000000", "g000001", "g000002")
    assert settle(state) == []
    finish(state, "g000003")
    assert moves(settle(state)) == [("cell-0", "training")]
    train(state, 0, "g000000", "g000001")
    assert moves(settle(state)) == [("cell-0", "rollout")]


def test_no_move_is_asked_for_while_another_is_under_way():
    """A3: moves are serial; the change that hangs raises an alarm after a minute, and nothing else."""
    state = running(10)
    settle(state)  # the core trains, w 8
    finish(state, "g000000", "g000001", "g000002", "g000003")
    request = [d for d in decide(state, 10.0) if isinstance(d, RoleChanged)]
    assert moves(request) == [("cell-1", "training")]
    apply(state, request[0])
    assert decide(state, 60.0) == []
    alarm = decide(state, 71.0)
    assert [type(a) for a in alarm] == [AlarmRaised] and alarm[0].values == {"cell-1": 61.0}
    apply(state, alarm[0])
    assert decide(state, 72.0) == []


def test_satellites_return_at_the_publish_last_in_first_out():
    """A4: cell 2 before cell 1, so that trainers stay a prefix; the core too, as its next data is not there."""
    state = running(30, extra_depth_steps=0.0)
    settle(state)
    finish(state, "g000000", "g000001")
    settle(state)
    assert [cell.target for cell in state.cells.values()] == ["training"] * 3
    train(state, 0, "g000000", "g000001")
    returned = moves(settle(state))
    assert returned[:3] == [("cell-2", "rollout"), ("cell-1", "rollout"), ("cell-0", "rollout")]


def test_the_core_stays_when_its_next_data_is_there_and_the_rest_holds_what_is_sent():
    """A4: 2 groups are ready for the next step, and 2 groups of 2 are sent: 4 ≤ C_e · (K − 1) = 8."""
    state = running(30)
    settle(state)
    finish(state, "g000000", "g000001", "g000002", "g000003")
    settle(state)
    train(state, 0, "g000000", "g000001")
    assert state.core_stays
    assert moves(settle(state))[:2] == [("cell-2", "rollout"), ("cell-1", "rollout")]
    assert state.cells["cell-0"].target == "training"


@pytest.mark.parametrize(("ready", "capacity"), [(False, 4), (True, 1)])
def test_the_core_returns_when_data_or_capacity_is_missing(ready, capacity):
    """A4: the other two cases: evaluated samples not there yet; or 4 executions to be sent and 1 · (3 − 1) = 2 places without the core."""
    state = running(30, cell_capacity=capacity)
    settle(state)
    finish(state, "g000000", "g000001")
    finish(state, "g000002", "g000003", ready=ready)
    settle(state)
    train(state, 0, "g000000", "g000001")
    assert not state.core_stays
    assert ("cell-0", "rollout") in moves(settle(state))


def test_no_satellite_is_asked_to_a_batch_that_is_closed():
    """A8: joining closes with the batch; a satellite released after it could add nothing."""
    state = running(30, extra_depth_steps=0.0)
    settle(state)
    finish(state, "g000000")
    apply(state, facts.closed(0, ["g000000"], ["g000000-e0-a1", "g000000-e1-a1"]))
    finish(state, "g000001")
    targets = [cell.target for cell in state.cells.values()]
    assert settle(state) == [] and [cell.target for cell in state.cells.values()] == targets


def test_groups_that_were_all_dropped_do_not_stall_the_run():
    """C10: nothing is outstanding, but the step must be opened for its batch to be closed without gradient: the core goes."""
    state = running(30, extra_depth_steps=0.0, cells=1)
    settle(state)
    for group in ("g000000", "g000001"):
        finish(state, group, ready=False)
        for execution in (f"{group}-e0", f"{group}-e1"):
            apply(state, facts.dropped(execution, reason="no_gradient"))
    assert state.outstanding_groups == 0
    assert moves(settle(state)) == [("cell-0", "training")]


def test_after_the_last_step_every_cell_serves():
    """A4: the final evaluation needs them; more steps asked for later are a boundary of their own."""
    world = World(chosen())
    world.submit(30)
    world.start(5)
    world.run()
    assert all(cell.is_serving for cell in world.state.cells.values())
    before = len(world.levels)
    world.start(9)
    world.run()
    assert world.state.steps_done == 9 and len(world.levels) > before


def test_an_evaluation_waits_for_nobody_and_holds_cells_back():
    """A4: submitted while training may begin, it is dispatched at once and its executions count in w."""
    state = running(10)
    apply(state, facts.submitted(10, size=3, purpose="evaluation"))
    requests = settle(state)
    assert state.waterlevel == 8 + 3
    assert moves(requests)[3:] == []  # 11 > 12 − 4


def test_tasks_that_come_late_in_a_burst_go_only_where_there_is_room():
    """A3: the queue was empty, cells were released; a late group is sent within what the remaining cells hold, and never beyond."""
    state = running(1, cells=2, cell_capacity=2)
    settle(state)
    assert state.cells["cell-0"].target == "training"  # w 2 ≤ 4 − 2
    apply(state, facts.submitted(1))
    assert not [d for d in decide(state, 0.0) if isinstance(d, GroupDispatched)]  # 2 + 2 > 2
    finish(state, "g000000")
    sent = [d for d in decide(state, 0.0) if isinstance(d, GroupDispatched)]
    assert [group.group_id for group in sent] == ["g000001"]

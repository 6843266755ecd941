"""What-if: the present state as a specification, changed knobs, and what is made of the simulations (D15)."""

import math
from copy import deepcopy

import pytest

from gyre.api.scheduler.v1 import scheduler_pb2 as pb
from gyre.config import Config, SchedulerConfig
from gyre.errors import Conflict, InvalidInput
from gyre.records import CellReported
from services.scheduler import what_if
from services.scheduler.core import Settings, State
from services.scheduler.present import measured_step_s, specification
from services.scheduler.simulator import parse, simulate
from services.scheduler.simulator.bounds import DAY_S, YEAR_H
from services.scheduler.simulator.world import World

TREE = {
    "cluster": {"nodes_per_cell": 1, "slots_per_node": 16.0},
    "workload": {"median_h": 1.0, "sigma": 0.5, "wall_limit_h": 8.0},
    "training": {"group_node_h": 2.0},
    "scheduler": {"cells": 4, "groups_per_step": 4, "group_size": 8, "steps_per_publish": 2, "extra_depth_steps": 0.5},
    "horizon": {"first_steps": 1, "warmup_steps": 6, "steady_steps": 24},
}
CAP = 8
"""trajproc.age_steps_max"""


@pytest.fixture(scope="module")
def lived():
    """A simulated run of 32 steps, and what its scheduler knows then."""
    world = World(parse(TREE), 7)
    world.until_step(32)
    return world


def test_the_measured_run_predicts_itself(lived):
    """Another seed of the true world against one of what the scheduler has learnt of it: the same time of a step within 6 % (measured: 1 to 2 %),
    the law's staleness φ + (μ − 1)/2 = 1."""
    tree, basis = specification(lived.state, lived.spec.scheduler, CAP)
    true, predicted = simulate(parse(TREE), 3), simulate(parse({**tree, "horizon": TREE["horizon"]}), 3)
    assert predicted.step_h == pytest.approx(true.step_h, rel=0.06)
    assert predicted.staleness_mean == pytest.approx(1.0, abs=0.15)
    assert measured_step_s(lived.state) / 3600 == pytest.approx(true.step_h, rel=0.1)
    assert tree["training"]["group_node_h"] == pytest.approx(2.0, rel=0.05)
    assert any("into training: 8.52 s" in line for line in basis)


def test_nothing_is_predicted_before_anything_was_measured():
    state = State(Settings.of(Config(), ""))
    with pytest.raises(Conflict, match="first steps"):
        specification(state, SchedulerConfig(), CAP)
    assert measured_step_s(state) == 0.0


def test_knobs_are_toml_and_impossible_ones_say_what_is_possible(lived):
    base, _ = specification(lived.state, lived.spec.scheduler, CAP)
    tree = what_if.with_knobs(base, {"extra_depth_steps": "1", "mode": "colocate", "cell_capacity": "24"})
    changed = parse(tree)
    assert (changed.scheduler.extra_depth_steps, changed.scheduler.mode) == (1.0, "colocate")
    assert changed.cell_slots == [24] * 4 and parse(base).cell_slots == [16] * 4
    with pytest.raises(InvalidInput, match=r"no field 'depth'; it has .*extra_depth_steps"):
        what_if.with_knobs(base, {"depth": "1"})
    with pytest.raises(InvalidInput, match="name 1 to"):
        what_if.with_knobs(base, {})
    for knobs, why in (
        ({"extra_depth_steps": "-1"}, "extra_depth_steps"),
        ({"mode": "async"}, "training_cells"),
        ({"mode": "x"}, "mode"),
        ({"extra_depth_steps": "nan"}, "scheduler.extra_depth_steps"),
        ({"cell_capacity": "0"}, ">= 1 - at `scheduler.cell_capacity`"),
        ({"cell_capacity": "much"}, "`int`, got `str` - at `scheduler.cell_capacity`"),
        ({"cell_capacity": "1000000000000"}, "scheduler.cell_capacity 1000000000000 in 4 cells .* at most 100000"),
        ({"cells": "1024", "cell_capacity": "1000"}, "scheduler.cell_capacity 1000 in 1024 cells .* at most 976"),
        ({"cell_capacity": "7"}, "group_size 8 is larger than any cell: at most 7"),
        (
            {"steps_per_publish": "6", "extra_depth_steps": "7"},
            "age_steps_max 8 is below .* 9.5 .*extra_depth_steps is at most 5.5",
        ),
        ({"steps_per_publish": "30"}, "bursts of 30 steps .*steps_per_publish is at most 17"),
        ({"tiers": "[{name = 'a', concurrency_max = 0}]"}, r">= 1 - at `scheduler.tiers\[0\].concurrency_max`"),
        (
            {"tenant_weights": "{a = 2.0}"},
            "changes nothing that a what-if simulates; it simulates cell_capacity, cells",
        ),
    ):
        with pytest.raises(InvalidInput, match=why):
            parse(what_if.with_knobs(base, knobs))


def test_cells_are_simulated_as_they_report_themselves_now(lived):
    """Cells of 16, 8, 8 and 8 slots (D15): they are what is simulated, the policy is told of them, and other knobs are laid over them."""
    state = deepcopy(lived.state)
    for cell in list(state.cells)[1:]:
        state.fleet.reported(CellReported(cell=cell, capacity=8, at_s=1e12))
    base, basis = specification(state, lived.spec.scheduler, CAP)
    assert parse(base).cell_slots == [16, 8, 8, 8]
    assert any(line == "cells: 4 that are there, 1 of 16, 3 of 8 executions" for line in basis)
    world = World(parse(base), 1)
    assert [cell.capacity for cell in world.state.cells.values()] == [16, 8, 8, 8]
    assert world.cells[1].pace[8] == world.cells[0].pace[16], "a full cell's pace is a full cell's"
    for knobs, slots in (
        ({"cells": "3"}, [16, 8, 8]), ({"cells": "6"}, [16, 8, 8, 8, 16, 16]), ({"cell_capacity": "12"}, [12] * 4),
        ({"extra_depth_steps": "1"}, [16, 8, 8, 8]),
    ):  # fmt: skip
        assert parse(what_if.with_knobs(base, knobs)).cell_slots == slots
    with pytest.raises(InvalidInput, match="cells"):
        parse(what_if.with_knobs(base, {"cells": "2000"}))


def test_the_cap_of_age_of_the_run_holds_in_what_is_simulated(lived):
    """Cap 2: nothing staler is trained, and knobs whose mean would lie above it are refused with what is possible (C8)."""
    base, basis = specification(lived.state, lived.spec.scheduler, 2)
    assert parse(base).training.age_steps_max == 2 and any(
        "no group is trained more than 2 steps" in line for line in basis
    )
    assert simulate(parse(base), 1).staleness_max <= 2
    with pytest.raises(InvalidInput, match="age_steps_max 2 is below the mean staleness"):
        parse(what_if.with_knobs(base, {"extra_depth_steps": "4"}))


@pytest.mark.parametrize(
    ("mode", "lost", "why"), [
        ({}, ("cell-0", "cell-1", "cell-2", "cell-3"), "no cell that may train"),
        ({"standalone_cells": 1}, ("cell-0", "cell-1", "cell-2"), "no cell that may train"),
        ({"mode": "async", "training_cells": 1, "standalone_cells": 3}, ("cell-0",), "no cell that may train"),
        ({"mode": "async", "training_cells": 1, "standalone_cells": 3}, ("cell-1", "cell-2", "cell-3"), "no cell that may serve"),
        ({}, (), "cannot be simulated as it is now: .*larger than any cell"),
    ],
)  # fmt: skip
async def test_a_run_that_cannot_go_on_as_it_is_is_not_blamed_on_the_knobs(mode, lost, why):
    """D15: cells that are lost, or hold less than a group: a conflict with the present that says what of it, and not invalid input."""
    world = World(parse({**TREE, "scheduler": {**TREE["scheduler"], **mode}}), 7)
    world.until_step(10)
    for cell in world.state.cells:
        capacity = 0 if cell in lost else 16 if lost else 7
        world.state.fleet.reported(CellReported(cell=cell, capacity=capacity, at_s=1e12))
    with pytest.raises(Conflict, match=why):
        await what_if.WhatIf(world.spec.scheduler, CAP).ask(
            world.state, pb.WhatIfRequest(knobs={"extra_depth_steps": "1"})
        )


def test_a_cell_that_joined_a_fixed_split_serves_in_what_is_simulated():
    """D15, A9: async with 1 + 3 cells and a fifth that came later: 1 + 4."""
    split = {"mode": "async", "training_cells": 1, "standalone_cells": 3}
    world = World(parse({**TREE, "scheduler": {**TREE["scheduler"], **split}}), 7)
    world.until_step(10)
    world.state.fleet.reported(CellReported(cell="cell-9", capacity=16, at_s=1e12))
    found = parse(specification(world.state, world.spec.scheduler, CAP)[0]).scheduler
    assert (found.cells, found.training_cells, found.standalone_cells) == (5, 1, 4)


def test_what_was_measured_is_brought_within_what_can_be_simulated(lived):
    """A limit of a century and a role change of a week are no reason to answer nothing."""
    state = deepcopy(lived.state)
    for group in state.history.groups:
        group.wall_s = 1e12
    state.fleet.switch_s["training"] = [1e7]
    state.history.publish_s = 1e7
    found = parse(specification(state, lived.spec.scheduler, CAP)[0])
    assert found.workload.wall_limit_h == YEAR_H and found.cluster.into_training_s == found.cluster.publish_s == DAY_S


def test_seeds_are_compared_in_pairs():
    """Ratios 0.5 and 0.7: mean 0.6, standard error 0.1; times 10 s and 20 s: 15 ± 5."""

    def one(step_s: float) -> dict[str, float]:
        names = ("staleness_mean", "staleness_max", "token_staleness_mean", "timed_out_share", "idle_share")
        return {name: 0.0 for name in names} | {"step_h": step_s / 3600, "role_changes_per_step": 1.0}

    reply = what_if.summary([[one(10), one(5)], [one(20), one(14)]])
    assert (reply.time_ratio, reply.time_ratio_error) == (pytest.approx(0.6), pytest.approx(0.1))
    assert (reply.unchanged.step_s, reply.unchanged.step_s_error) == (pytest.approx(15), pytest.approx(5))
    assert math.isclose(reply.changed.step_s, 9.5) and reply.seeds == 2
    assert what_if.summary([[one(10), one(5)]]).time_ratio_error == 0.0


async def test_a_simulation_ends_at_its_limit_with_what_is_done(lived):
    """The child is given a hundred seeds and no time for the first: it is gone and nothing is answered."""
    base, _ = specification(lived.state, lived.spec.scheduler, CAP)
    assert await what_if._simulated({"specs": [base, base], "seeds": 100}, 0.05) == []

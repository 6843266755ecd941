"""What holds in every simulated run."""

import msgspec
import pytest

from services.scheduler.simulator import changed, parse, simulate
from services.scheduler.simulator.world import World
from tests.unit.scheduler.simulator.specs import cluster, two_cells

MODES = ["elastic", "elastic_plus", "async", "colocate", "hybrid_switch"]


@pytest.mark.parametrize("mode", MODES)
def test_the_same_seed_gives_the_same_run(mode):
    """A10"""
    spec = cluster(mode)
    assert simulate(spec, 3) == simulate(spec, 3) != simulate(spec, 4)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("sigma", [0.0, 0.4, 1.3])
@pytest.mark.parametrize(("burst", "depth"), [(1, 1.0), (3, 0.0), (2, 1.25)])
def test_the_law_of_staleness_holds_whatever_the_durations(mode, sigma, burst, depth):
    """A5: φ + (μ − 1)/2 to 0.02 steps. 240 steps, because what is carried over the window's ends counts as 1/window."""
    spec = cluster(mode, workload={"sigma": sigma, "group_share": 0.5}, horizon={"steady_steps": 240})
    result = simulate(changed(spec, steps_per_publish=burst, extra_depth_steps=depth), 1)
    assert result.staleness_mean == pytest.approx(depth + (burst - 1) / 2, abs=0.02)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("streaming", [True, False])
def test_a_cap_of_age_bounds_the_maximum_and_makes_nothing_staler(mode, streaming):
    """C8: a batch waits for a group in its last admissible step, so nothing is ever older than 2, where without the cap so long a tail gives more
    somewhere in 160 steps. What waits mostly comes in the first step of a burst and makes that one larger, so the mean is at most the law's."""
    spec = cluster(mode, workload={"sigma": 1.3}, horizon={"steady_steps": 160}, scheduler={"streaming": streaming})
    capped = msgspec.structs.replace(spec, training=msgspec.structs.replace(spec.training, age_steps_max=2))
    free, result = (simulate(changed(each, extra_depth_steps=1.0), 1) for each in (spec, capped))
    assert result.staleness_max == 2 < free.staleness_max
    assert 1.3 < result.staleness_mean <= 1.52


@pytest.mark.parametrize(("burst", "depth"), [(1, 1.0), (2, 1.0), (3, 0.5)])
def test_continuous_dispatch_has_its_own_law(burst, depth):
    """A5: one group sent whenever one is consumed, φ + 3(μ − 1)/2 (docs/staleness.md)."""
    spec = cluster("async", scheduler={"dispatch": "continuous"}, horizon={"steady_steps": 240})
    spec = changed(spec, steps_per_publish=burst, extra_depth_steps=depth)
    assert simulate(spec, 1).staleness_mean == pytest.approx(spec.staleness_steps, abs=0.02)
    assert spec.staleness_steps == depth + 1.5 * (burst - 1)


@pytest.mark.parametrize("mode", MODES)
def test_work_done_is_the_work_of_the_executions_and_of_their_moves(mode):
    """A10. Nothing is lost or done twice: decoded work = all work that was dispatched − what is left or was cut + what moves added, at most 30 s
    each: who is moved before its prefix was computed again has not to do that twice."""
    world = World(cluster(mode), 1)
    given, draw = [], world._source.group

    def remembered(step):
        task_type, work_s = draw(step)
        given.append(work_s)
        return task_type, work_s

    world._source.group = remembered
    before = sum(e.work_s for e in world.rollout.waiting) + sum(
        e.finish - c.clock for c in world.cells for e in c.running()
    )
    world.until_step(20)
    world.totals()
    running = sum(execution.finish - cell.clock for cell in world.cells for execution in cell.running())
    left = running + sum(execution.work_s for execution in world.rollout.waiting)
    unsent = sum(execution.work_s for group in world.groups.values() for execution in group.executions)
    spent = before + sum(map(sum, given)) - left - unsent - world.measures.work_cut_s + world.measures.work_moved_s
    assert sum(cell.work_done_s for cell in world.cells) == pytest.approx(spent, rel=1e-9)
    assert 0.8 * 30.0 * world.measures.evictions <= world.measures.work_moved_s <= 30.0 * world.measures.evictions


@pytest.mark.parametrize("mode", ["colocate", "hybrid_switch"])
def test_no_execution_is_moved_for_ever(mode):
    """A5: executions of no length beside a pool that leaves as soon as a batch of them is ready: who is moved at each visit, before it has
    computed its prefix again, owes that once and not once more for each visit, and ends. The law holds, and nothing grows old."""
    spec = parse({
        "cluster": {"nodes_per_cell": 4, "slots_per_node": 2.0, "into_rollout_s": 600.0}, "training": {"group_node_h": 0.01},
        "workload": {"kind": "history", "history_h": [[1e-9] * 3], "wall_limit_h": 50.0},
        "scheduler": {"mode": mode, "cells": 1, "groups_per_step": 7, "group_size": 3, "steps_per_publish": 3, "extra_depth_steps": 0.5},
        "horizon": {"first_steps": 1, "warmup_steps": 30, "steady_steps": 120},
    })  # fmt: skip
    result = simulate(spec, 1)
    assert result.staleness_mean == pytest.approx(1.5, abs=0.02) and result.staleness_max <= 6


def test_equal_cells_do_equal_work():
    """A10. Placement on the least loaded cell spreads work over equal standalone cells."""
    split = {"cells": 4, "training_cells": 1, "standalone_cells": 3, "mode": "async"}
    world = World(cluster("elastic", cluster={"speed": {"slowdown": 0.5}}, scheduler=split), 1)
    world.until_step(240)
    world.totals()
    done = [cell.work_done_s for cell in world.cells[1:]]
    assert world.cells[0].work_done_s == 0.0 and max(done) < 1.05 * min(done)


@pytest.mark.parametrize("mode", MODES)
def test_no_run_is_faster_than_the_bound(mode):
    result = simulate(cluster(mode), 2)
    assert 0 < result.bound_step_h < result.step_h
    assert 0 <= result.idle_share < 1 and result.idle_share <= result.unused_share


@pytest.mark.parametrize("mode", ["colocate", "hybrid_switch"])
def test_what_pauses_until_the_wall_limit_cuts_it_is_no_work_of_the_bound(mode):
    """A pool that trains most of the time, executions of a tenth and of fifty hours: the long ones are paused for most of their four hours, so they
    do less than at the slowest pace, and a bound that counted that would lie above the time of the run itself."""
    spec = parse({
        "cluster": {"nodes_per_cell": 3, "slots_per_node": 1.0, "rebalance": True}, "training": {"group_node_h": 1.0},
        "workload": {"kind": "history", "history_h": [[0.1, 0.1, 50.0]], "wall_limit_h": 4.0},
        "scheduler": {"mode": mode, "cells": 3, "groups_per_step": 3, "group_size": 3, "steps_per_publish": 3, "extra_depth_steps": 4.0},
        "horizon": {"first_steps": 1, "warmup_steps": 30, "steady_steps": 60},
    })  # fmt: skip
    result = simulate(spec, 1)
    assert result.timed_out_share > 0.3 and 0 < result.bound_step_h <= result.step_h


def test_packing_the_training_shortens_it():
    """B8. Training bound: .748 of the cost takes about .748 of the time."""
    heavy = two_cells(training={"group_node_h": 4.0}, scheduler={"extra_depth_steps": 2.0})
    packed = msgspec.structs.replace(heavy, training=msgspec.structs.replace(heavy.training, unique_token_share=0.748))
    ratio = simulate(packed).first_steps_h / simulate(heavy).first_steps_h
    assert ratio == pytest.approx(0.748, abs=0.02)


def test_tokens_are_fresher_than_dispatch_where_weights_change_in_flight():
    """A5. Executions that run over a publish sample part of their tokens with newer weights; with φ = 0 none does."""
    deep = simulate(changed(cluster("async"), steps_per_publish=1, extra_depth_steps=2.0), 1)
    flat = simulate(changed(cluster("async"), steps_per_publish=3, extra_depth_steps=0.0), 1)
    assert deep.token_staleness_mean < deep.staleness_mean - 0.1
    assert flat.token_staleness_mean == pytest.approx(flat.staleness_mean)

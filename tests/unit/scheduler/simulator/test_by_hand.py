"""Cases small enough to be worked out on paper."""

import pytest

from services.scheduler.simulator import simulate
from services.scheduler.simulator.world import World
from tests.unit.scheduler.simulator.specs import spec, two_cells

ROLE_CHANGE_H = (8.52 + 3.46) / 3600


def test_one_node_in_turn_takes_rollout_plus_moves_plus_training():
    """A10. A step is 1 h of rollout, 2 · 0.5 node-h of training on one node, and a role change there and back; the last one is not gone back from."""
    result = simulate(spec())
    assert result.first_steps_h == pytest.approx(4 * (1.0 + 1.0 + ROLE_CHANGE_H) - 3.46 / 3600, abs=1e-6)


def test_slots_bind():
    """A10. Two slots for four executions of one hour: two rounds, so rollout takes 2 h."""
    result = simulate(spec(cluster={"slots_per_node": 2.0}))
    assert result.first_steps_h == pytest.approx(4 * (2.0 + 1.0 + ROLE_CHANGE_H) - 3.46 / 3600, abs=1e-6)
    assert result.wait_h == pytest.approx(0.5, abs=0.001)  # two of four wait an hour, all for the cell to come back


def test_a_loaded_node_decodes_slower():
    """A10. Full (x = 1) with slowdown 1 each execution has half the speed."""
    result = simulate(spec(cluster={"speed": {"slowdown": 1.0}}))
    assert result.first_steps_h == pytest.approx(4 * (2.0 + 1.0 + ROLE_CHANGE_H) - 3.46 / 3600, abs=1e-6)
    assert result.execution_h == pytest.approx(2.0)


def test_the_environments_share_does_not_slow_down():
    """A10. Half of the time the environment works: 1/(0.5 + 0.5/0.5) of the pace, 1.5 h."""
    result = simulate(spec(cluster={"speed": {"slowdown": 1.0}}, workload={"environment_share": 0.5}))
    assert result.execution_h == pytest.approx(1.5)


def test_a_constant_server_with_c_slots_serves_c_an_hour():
    """A10. M/D/c at full use: c = 4 slots and 1 h each give 4 executions an hour, a group every half hour, a step (two groups) every hour; training
    (2 · 0.5 node-h on one node an hour) just keeps up, and a step of staleness hides it."""
    result = simulate(
        two_cells(
            scheduler={"extra_depth_steps": 1.0, "streaming": True}, horizon={"warmup_steps": 4, "steady_steps": 40}
        )
    )
    assert result.step_h == pytest.approx(1.0, abs=0.02)
    assert result.execution_h == pytest.approx(1.0)
    assert result.staleness_mean == pytest.approx(1.0)


def test_the_wall_limit_cuts_and_still_trains():
    """B4. One hour of work and half an hour of time: all are cut, and the steps go on."""
    result = simulate(spec(workload={"wall_limit_h": 0.5}))
    assert result.timed_out_share == 1.0 and result.execution_h == pytest.approx(0.5)
    assert result.first_steps_h == pytest.approx(4 * (0.5 + 1.0 + ROLE_CHANGE_H) - 3.46 / 3600, abs=1e-6)


def test_streaming_hides_all_but_the_last_group():
    """A7. One execution in two slots at a time: groups end at 1 h and 2 h, so only the last group's half hour comes after rollout."""
    kept = {"cluster": {"slots_per_node": 2.0}, "workload": {"sigma": 0.0}}
    batch = simulate(two_cells(**kept))
    streamed = simulate(two_cells(**kept, scheduler={"streaming": True}))
    assert batch.first_steps_h == pytest.approx(4 * (2.0 + 1.0), abs=1e-6)
    assert streamed.first_steps_h == pytest.approx(4 * (2.0 + 0.5), abs=1e-6)


def test_a_drain_waits_for_what_runs():
    """C1's rule: without role transfer the pool trains only when its own executions have ended. Group 0 is ready at 1 h; with depth the second
    step's executions (started at 1 h in its slots) end at 2 h, and only then the pool leaves."""
    result = simulate(
        spec(cluster={"role_transfer": False}, scheduler={"extra_depth_steps": 1.0}, horizon={"first_steps": 1})
    )
    assert result.first_steps_h == pytest.approx(2.0 + 8.52 / 3600 + 1.0, abs=1e-6)
    moved = simulate(spec(scheduler={"extra_depth_steps": 1.0}, horizon={"first_steps": 1}))
    assert moved.first_steps_h == pytest.approx(1.0 + 8.52 / 3600 + 1.0, abs=1e-6)


@pytest.mark.parametrize(("is_whole_run", "groups"), [(True, 8), (False, 12)])
def test_a_whole_run_sends_what_its_steps_train_and_no_more(is_whole_run, groups):
    """D15. Four steps of two groups are 8; one that goes on has (φ + μ)·B = 4 outstanding after its fourth publish."""
    world = World(two_cells(scheduler={"extra_depth_steps": 1.0}, horizon={"is_whole_run": is_whole_run}), seed=1)
    world.until_step(4)
    assert world.state.dispatched_groups == groups

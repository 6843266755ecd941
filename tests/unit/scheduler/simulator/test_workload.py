"""Groups of executions: the lognormals, real agents' runs, a history."""

import math
import statistics

import pytest

from gyre.errors import InvalidInput
from services.scheduler.simulator import simulate
from services.scheduler.simulator.workload import Source, agent_runs
from tests.unit.scheduler.simulator.specs import cluster, spec


def draw(groups, **workload):
    source = Source(spec(workload=workload, cluster={"slots_per_node": 16.0}, scheduler={"group_size": 8}), 1)
    return [source.group(0) for _ in range(groups)]


def test_the_lognormal_has_its_median_spread_and_common_share():
    """A10. 2,000 groups of 8: mean ln 1.5 h, σ .6, group means vary by r + (1 − r)/8 of the variance; 3 standard errors."""
    logs = [
        [math.log(work / 3600) for work in group] for _, group in draw(2_000, median_h=1.5, sigma=0.6, group_share=0.4)
    ]
    flat = [value for group in logs for value in group]
    assert statistics.fmean(flat) == pytest.approx(math.log(1.5), abs=0.03)
    assert statistics.pstdev(flat) == pytest.approx(0.6, rel=0.05)
    between = statistics.pvariance([statistics.fmean(group) for group in logs])
    assert between == pytest.approx(0.36 * (0.4 + 0.6 / 8), rel=0.1)


def test_the_paper_s_means_follow_from_its_lognormal():
    """N 8, r .5, median 1.71 h, σ .56, cut at 4 h: 1.93 h an execution and 2.96 h a query, as the paper says; 3 standard errors."""
    cut = [
        [min(work / 3600, 4.0) for work in group]
        for _, group in draw(4_000, median_h=1.71, sigma=0.56, group_share=0.5)
    ]
    assert statistics.fmean(value for group in cut for value in group) == pytest.approx(1.93, rel=0.02)
    assert statistics.fmean(max(group) for group in cut) == pytest.approx(2.96, rel=0.02)


def test_agent_runs_are_scaled_and_keep_their_task():
    """The published file: 640 pairs of agent and task (some without a usable run); the mean is the one asked for."""
    assert 600 < len(agent_runs()) <= 640
    groups = draw(3_000, kind="agent_runs", mean_h=1.2)
    assert statistics.fmean(work / 3600 for _, group in groups for work in group) == pytest.approx(1.2, rel=0.05)
    assert 60 < len({task for task, _ in groups}) <= 80


def test_an_unknown_agent_is_refused_with_those_there_are():
    with pytest.raises(InvalidInput, match="goose"):
        draw(1, kind="agent_runs", agent="nobody")


def test_a_history_is_resampled_in_whole_groups():
    seen = [[1.0] * 8, [2.0] * 8]
    assert {tuple(group) for _, group in draw(50, kind="history", history_h=seen)} == {(3600.0,) * 8, (7200.0,) * 8}
    with pytest.raises(InvalidInput, match="at least one group"):
        draw(1, kind="history")


def test_drift_reaches_its_factors():
    """Work doubles and training halves by step 60 and stays there: geometrically, so by √2 at step 30."""
    source = Source(spec(workload={"work_growth": 2.0}), 1)
    assert [source.group(step)[1][0] / 3600 for step in (0, 30, 60, 90)] == pytest.approx([1.0, 2**0.5, 2.0, 2.0])


def test_a_run_lives_through_failures_stragglers_and_slow_cells():
    """A8. Failures every 20 h, a tenth of the executions with three times the work, a quarter of the cells slow: slower, and done."""
    calm = simulate(cluster("elastic"), 1)
    rough = simulate(
        cluster(
            "elastic",
            cluster={"failure_every_h": 20.0, "slow_cell_share": 0.25, "slow_cell_factor": 1.5},
            workload={"straggler_share": 0.1, "straggler_factor": 3.0},
        ),
        1,
    )
    assert rough.step_h > calm.step_h
    assert rough.staleness_mean == pytest.approx(calm.staleness_mean, abs=0.05)

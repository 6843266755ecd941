"""The benchmark of elastic_plus as it is called (D15), on horizons so short that its figures mean nothing."""

import math
import random

import pytest

from benchmarks import elastic_plus
from services.scheduler.planner import search
from services.scheduler.simulator import changed, simulate
from tests.unit.scheduler.simulator.specs import cluster


@pytest.fixture(autouse=True)
def short(monkeypatch):
    monkeypatch.setattr(elastic_plus, "WARMUP_STEPS", 12)
    monkeypatch.setattr(elastic_plus, "STEADY_STEPS", 12)
    monkeypatch.setattr(search, "STEPS_MIN", 3)
    monkeypatch.setattr(search, "EXECUTIONS_MAX", 100)
    monkeypatch.setattr(search, "WARMUP_STEPS", 2)


@pytest.mark.parametrize("measure", ["dispatch", "token"])
def test_workloads_are_compared_with_e0_and_with_a_tuned_one(monkeypatch, measure):
    monkeypatch.setattr(elastic_plus, "drawn", lambda rng: cluster("elastic"))
    found = elastic_plus.of_random(1, 7, measure, math.inf)
    assert found["workloads"] == 1 and found["promises_broken"] == 0
    assert 0.0 < found["bound_mean"] < found["mean"] <= found["worst"]


def test_time_is_compared_by_the_group():
    """A batch that waits for a group in its last admissible step has more than B: more groups in as many steps."""
    spec = elastic_plus._lasting(elastic_plus.drawn(random.Random(1)))
    capped = elastic_plus._replaced(
        changed(spec, steps_per_publish=1, extra_depth_steps=1.0), "training", age_steps_max=1
    )
    theirs, ours = simulate(spec, 1), simulate(capped, 1)
    assert ours.groups > theirs.groups == 12 * spec.scheduler.groups_per_step
    assert elastic_plus.over(ours, theirs) == pytest.approx(
        (ours.step_h / ours.groups) / (theirs.step_h / theirs.groups)
    )

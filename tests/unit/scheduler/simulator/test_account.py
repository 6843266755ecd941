"""Where node-hours go (D15): by hand, and that the causes add up and agree with what the run itself measures."""

import pytest

from benchmarks.elastic_parts import BESIDE, BETWEEN, RAMP, accounted
from services.scheduler.simulator import simulate
from tests.unit.scheduler.simulator.specs import cluster, spec

ROLE_CHANGE_H = (8.52 + 3.46) / 3600


def test_one_node_in_turn_decodes_an_hour_trains_an_hour_and_changes_its_role():
    """Four executions fill its four slots, so nothing is lost but the way there and back."""
    found = accounted(spec(horizon={"first_steps": 1, "warmup_steps": 2, "steady_steps": 4}), 1)
    whole_h = 2.0 + ROLE_CHANGE_H
    assert [found["training"], found["decoding"]] == pytest.approx([1.0 / whole_h] * 2)
    assert found["role_change"] == pytest.approx(ROLE_CHANGE_H / whole_h)
    assert sum(found.values()) == pytest.approx(1.0)


def test_a_half_empty_node_loses_half_of_its_ramp():
    """Eight slots for four executions, whose pace does not depend on load: half of the hour before the first group is ready is lost."""
    slots = {"slots_per_node": 8.0}
    found = accounted(spec(cluster=slots, horizon={"first_steps": 1, "warmup_steps": 2, "steady_steps": 4}), 1)
    assert [found[RAMP], found["decoding"]] == pytest.approx([0.5 / (2.0 + ROLE_CHANGE_H)] * 2)


@pytest.mark.parametrize("mode", ["elastic", "elastic_plus", "async"])
def test_causes_add_up_and_agree_with_the_run(mode):
    found, result = accounted(cluster(mode), 1), simulate(cluster(mode), 1)
    assert sum(found.values()) == pytest.approx(1.0)
    assert found["training"] + found["decoding"] == pytest.approx(1.0 - result.unused_share)
    assert found.get(RAMP, 0.0) + found.get(BETWEEN, 0.0) + found.get(BESIDE, 0.0) > 0.0

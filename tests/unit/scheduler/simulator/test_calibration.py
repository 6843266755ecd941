"""The shipped calibration against the paper's table."""

import random

import pytest

from gyre.errors import InvalidInput
from services.scheduler.simulator import parameters
from services.scheduler.simulator.observations import Observation, loss, misplaced, observe, rms
from services.scheduler.simulator.rows import calibration

SEEDS = range(4_001, 4_003)
"""Fresh: neither those of a fit nor those of the table."""


def test_the_shipped_calibration_meets_the_table_on_fresh_seeds():
    """A10. Over 20 seeds the rows' root mean square error is 2.8 % and the worst (C3) has 6.3 %. A row varies by up to 4 % from seed to seed, so the
    mean of two is allowed 2.2 and 5 points more. Training is hidden: hardly ever does nothing run."""
    found = {observation.name: observation for observation in observe(calibration(), SEEDS)}
    assert rms(list(found.values())) < 0.05
    assert all(abs(observation.error) < 0.11 for name, observation in found.items() if name not in ("slack", "exposed"))
    assert found["exposed"].ours < 0.02


def test_rows_that_change_places_cost_what_lies_between_them():
    """The paper has A0 1.556 over C2 1.193; ours the other way round by 10 %. Rows that the paper has within 3 % (E0, E2) may."""
    wrong = [Observation("A0", 1.556, 1.2), Observation("C2", 1.193, 1.32), Observation("E2", 1.022, 0.99)]
    assert misplaced(wrong) == [(1.2, 1.32)]
    right = [Observation("A0", 1.556, 1.556), Observation("C2", 1.193, 1.193)]
    assert misplaced(right) == [] and loss(right) == 0.0


def test_fixed_parameters_stay_as_they_are():
    """Fewer free choices, by name; an unknown name is refused with those that there are."""
    given = parameters.fixed("group_share=0,family=knee")
    rng = random.Random(1)
    for _ in range(20):
        point = parameters.near(parameters.draw(rng, given), 0.2, rng, given)
        assert (point["group_share"], point["family"]) == (0, "knee")
    with pytest.raises(InvalidInput, match="group_share"):
        parameters.fixed("sharing=1")

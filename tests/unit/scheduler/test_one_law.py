"""Everybody who speaks of the law of staleness says the same, for both kinds of dispatch (A5; test_staleness_law.py measures it)."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gyre.config.load import parse
from gyre.config.staleness import burst_max, depth_steps, mean_steps, strict_max_steps
from gyre.errors import ConfigError, InvalidInput
from services.ledger.queries import standing
from services.scheduler.core import Knobs
from services.scheduler.planner import planner_of
from services.scheduler.planner.knobs import shapes, staleness_mean
from services.scheduler.simulator import parse as simulated

ROOT = Path(__file__).resolve().parents[3]
CASES = [("boundary", 2.0, 4), ("continuous", 5.0, 7)]
"""Dispatch, mean and strict maximum of μ = 4, φ = .5: .5 + 3/2 and ⌈.5⌉ + 3; .5 + 9/2 and ⌈.5⌉ + 6."""


def configured(dispatch: str, **trajproc):
    scheduler = {"dispatch": dispatch, "steps_per_publish": 4, "extra_depth_steps": 0.5}
    return parse({"model": {"path": "m"}, "scheduler": scheduler, "trajproc": {"age_steps_max": 9} | trajproc}, "here")


@pytest.mark.parametrize(("dispatch", "mean", "most"), CASES)
def test_books_configuration_simulator_and_planner_say_the_same(dispatch, mean, most):
    config = configured(dispatch)
    assert standing.staleness([], config)["law"] == mean
    with pytest.raises(ConfigError, match=f"below the mean staleness {mean:g}"):
        configured(dispatch, age_steps_max=int(mean) - 1)
    tree = {"scheduler": {"cells": 4, "dispatch": dispatch, "steps_per_publish": 4, "extra_depth_steps": 0.5}}
    assert simulated(tree).staleness_steps == mean
    with pytest.raises(InvalidInput, match=f"below the mean staleness {mean:g}"):
        simulated(tree | {"training": {"age_steps_max": int(mean) - 1}})
    tree["scheduler"]["mode"] = "elastic_plus"
    assert planner_of(simulated(tree))._age_steps_max == most


@given(
    mean=st.floats(0.0, 12.0), burst=st.integers(1, 9), depth=st.floats(0.0, 6.0), dispatch=st.sampled_from(["boundary", "continuous"])
)  # fmt: skip
def test_every_shape_of_a_plan_keeps_the_mean_and_the_cap(mean, burst, depth, dispatch):
    """A9. Among them are the configured knobs themselves: a plan that cannot be taken at all would be no plan."""
    assert depth_steps(mean_steps(depth, burst, dispatch), burst, dispatch) == pytest.approx(depth)
    longest = burst_max(mean, dispatch)
    assert depth_steps(mean, longest, dispatch) >= -1e-6 and depth_steps(mean, longest + 1, dispatch) < 1e-6
    first = Knobs(steps_per_publish=burst, extra_depth_steps=depth)
    cap = strict_max_steps(depth, burst, dispatch)
    found = shapes(first, cap, dispatch)
    assert burst in {knobs.steps_per_publish for knobs in found}
    for knobs in found:
        assert staleness_mean(knobs, dispatch) == pytest.approx(staleness_mean(first, dispatch))
        assert strict_max_steps(knobs.extra_depth_steps, knobs.steps_per_publish, dispatch) <= cap


def test_nobody_has_a_law_of_his_own():
    law = re.compile(r"(steps_per_publish|burst|mu) - 1\) (/|\*) ")
    for folder in ("gyre", "services"):
        for file in (ROOT / folder).rglob("*.py"):
            if file != ROOT / "gyre" / "config" / "staleness.py":
                assert not law.search(file.read_text()), (
                    f"{file.relative_to(ROOT)}: the law stands in gyre/config/staleness.py"
                )

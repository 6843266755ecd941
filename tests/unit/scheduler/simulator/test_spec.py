"""Bad input: impossible knobs are refused with what would be possible."""

import pytest

from gyre.errors import InvalidInput
from services.scheduler.simulator import merged, parse
from tests.unit.scheduler.simulator.specs import PLAIN


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"scheduler": {"extra_depth_steps": -0.5}}, "extra_depth_steps"),
        ({"scheduler": {"tiers": [{"name": "all", "concurrency_max": 0}]}}, "concurrency_max"),
        ({"scheduler": {"tiers": [{"name": "all", "concurrency_max": 1}]}}, "at least 2"),
        ({"scheduler": {"tiers": []}}, "tiers is empty"),
        ({"scheduler": {"group_size": 5}}, "at most 4"),
        ({"scheduler": {"standalone_cells": 1}}, "at most 0 of 1"),
        ({"scheduler": {"training_cells": 1}}, "it must be 0"),
        ({"scheduler": {"mode": "async"}}, "at least 1 of each"),
        ({"cluster": {"cell_nodes": [1, 1]}}, "they must agree"),
        ({"cluster": {"slots_per_node": 0.2}}, "at least 1"),
        ({"workload": {"medain_h": 1.0}}, "medain_h"),
        ({"workload": {"median_h": float("nan")}}, r"workload\.median_h"),
        ({"scheduler": {"extra_depth_steps": "inf"}}, r"`scheduler\.extra_depth_steps` is inf"),
        ({"horizon": {"is_whole_run": True, "steady_steps": 60}}, "is_whole_run"),
    ],
)
def test_impossible_knobs_are_refused_with_what_would_be_possible(changes, words):
    with pytest.raises(InvalidInput, match=words):
        parse(merged(PLAIN, changes))

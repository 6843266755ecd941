"""Bad input: impossible knobs are refused with what would be possible."""

import msgspec
import pytest

from gyre.errors import InvalidInput
from services.scheduler.simulator import merged, parse, simulate
from services.scheduler.simulator.spec import Cluster, Horizon, Speed, Training, Workload
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
        ({"name": "\x1b[31mx"}, r"all of them printable, not '\\x1b\[31mx'"),
        ({"name": "x\ufffe"}, "printable"),
        ({"name": "\u202ex"}, "printable"),
        ({"name": "x" * 201}, "at most 200 characters"),
        ({"workload": {"sigma": 1000.0}}, r"<= 5\.0 .*workload\.sigma"),
        ({"workload": {"sigma": 5.0, "wall_limit_h": 1e12}}, r"<= 8766\.0 .*wall_limit_h"),
        ({"workload": {"median_h": 1e-300}}, r">= 1e-09 .*median_h"),
        ({"cluster": {"slots_per_node": 1e300}}, r"<= 100000\.0 .*slots_per_node"),
        ({"cluster": {"into_training_s": 1e12}}, r"<= 86400\.0 .*into_training_s"),
        (
            {"cluster": {"nodes_per_cell": 10_000, "slots_per_node": 101.0}},
            "hold 1,010,000 executions at once.*at most 1,000,000",
        ),
        ({"cluster": {"failure_every_h": 1e-6}}, "too often.*0 for none, or at least 0.01"),
        ({"cluster": {"cell_slots": [4, 4]}}, "cell_slots names 2 cells.*must agree"),
        (
            {"scheduler": {"extra_depth_steps": 1e9}},
            "1e[+]09 steps of 4 executions.*at most 1,000,000 executions, 250,000 steps",
        ),
        ({"scheduler": {"steps_per_publish": 1_000_000}}, "1e[+]06 steps of 4 executions would be dispatched ahead"),
        (
            {"scheduler": {"groups_per_step": 100_000}, "horizon": {"first_steps": 100}},
            "too much to simulate: at most 10,000,000",
        ),
        ({"horizon": {"steady_steps": 1_000_000}}, r"<= 100000 .*steady_steps"),
    ],
)
def test_impossible_knobs_are_refused_with_what_would_be_possible(changes, words):
    with pytest.raises(InvalidInput, match=words):
        parse(merged(PLAIN, changes))


def test_every_number_of_a_specification_has_both_bounds():
    """Bad input: a field without them is one with which a simulation would not end, or would overflow. The policy's section is bounded by the
    size of what it sends."""
    for section in (Cluster, Speed, Workload, Training, Horizon):
        for field, given in msgspec.json.schema(section)["$defs"][section.__name__]["properties"].items():
            while given.get("type") == "array":
                given = given["items"]
            if (
                given.get("type") in ("integer", "number") and field != "age_steps_max"
            ):  # a cap that nothing reaches is none
                assert {"minimum", "exclusiveMinimum"} & given.keys(), (section, field)
                assert {"maximum", "exclusiveMaximum"} & given.keys(), (section, field)


def test_a_whole_run_dispatches_no_further_ahead_than_its_end():
    """A depth beyond all steps is one that sends everything at the start: of a run with an end that is no impossible knob."""
    whole = {"scheduler": {"extra_depth_steps": 1e9}, "horizon": {"is_whole_run": True, "first_steps": 3}}
    assert simulate(parse(merged(PLAIN, whole)), 1).first_steps_h > 0.0

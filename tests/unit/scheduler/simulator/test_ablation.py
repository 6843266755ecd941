"""The paper's table as data, the calibration's objective, the command line."""

import json
import random
import subprocess
import sys

import click
import msgspec
import pytest
from click.testing import CliRunner

from gyre.errors import InvalidInput
from services.scheduler.simulator import parameters, rows, tune
from services.scheduler.simulator.__main__ import OF_ABLATION, OF_SPEC, simulate_command
from services.scheduler.simulator.ablation import ablation
from services.scheduler.simulator.large_run import predict
from services.scheduler.simulator.observations import NUM_OBSERVATIONS, Observation, loss, loss_of, observe

SMALL = msgspec.structs.replace(
    rows.calibration("f2"),
    base=rows.merged(rows.calibration("f2").base, {"scheduler": {"group_size": 2}, "workload": {"sigma": 0.3}}),
)
"""A quarter of the executions, so that a test takes seconds."""


def test_every_row_of_the_table_is_there_and_at_the_same_staleness():
    """A9, A10: eleven rows with the paper's figures, and ours; φ + (μ − 1)/2 is the calibration's in each."""
    table = rows.rows()
    papers = {row.row: row.paper for row in table if row.paper}
    assert papers == {
        "A0": 1.556, "A1": 1.676, "A2": 2.021, "A3": 1.376, "C0": 1.442, "C1": 1.400, "C2": 1.193, "C3": 1.284, "E0": 1.0, "E1": 1.109, "E2": 1.022,
    }  # fmt: skip
    for name in ("f1", "f2"):
        chosen = rows.calibration(name)
        specs = [rows.spec_of(row, chosen) for row in table]
        assert {spec.staleness_steps for spec in specs} == {chosen.staleness_steps}
        assert {spec.nodes for spec in specs} == {32}


def test_a_row_changes_nothing_but_its_knobs():
    """No row is fitted by a special case: workload, training and load curve are the same in all of them."""
    chosen = rows.calibration("f1")
    specs = [rows.spec_of(row, chosen) for row in rows.rows()]
    assert (
        len(
            {
                msgspec.json.encode([spec.workload, spec.training, spec.cluster.speed, spec.cluster.eviction_s])
                for spec in specs
            }
        )
        == 1
    )


def test_a_burst_too_long_for_the_staleness_is_refused():
    with pytest.raises(InvalidInput, match="at most 5 steps"):
        rows.spec_of(rows.rows()[0], SMALL, steps_per_publish=6)


def test_the_ablation_has_an_object_for_each_row_and_the_bound(monkeypatch):
    """A10. In the table's order, E0 is 1 by definition, nothing is below the bound."""
    monkeypatch.setattr("services.scheduler.simulator.ablation.FIRST_SEEDS", 2)
    objects = list(ablation(SMALL, seeds=2, is_tuned=False, steady_steps=20))
    assert [found["row"] for found in objects] == [row.row for row in rows.rows()] + ["bound"]
    by_name = {found["row"]: found for found in objects}
    assert by_name["E0"]["ours_12"] == by_name["E0"]["ours_steady"] == 1.0
    assert all(found["ours_steady"] >= by_name["bound"]["ours_steady"] for found in objects)
    assert by_name["A0"]["ours_12"] > 1.0 and by_name["A0"]["ours_steady_spread"] > 0.0


def test_the_best_of_a_mode_is_no_worse_than_its_row(monkeypatch):
    """A9: baselines are searched over the same knobs that the row has."""
    monkeypatch.setattr(tune, "SPLIT_NODES", 8)
    table = [row for row in rows.rows() if row.row in ("A3", "C2")]
    found = tune.best(table, SMALL, 20)
    ours = {row.row: tune.simulate_steady(rows.spec_of(row, SMALL), 20) for row in table}
    assert all(found[name]["step_h"] <= 1.03 * ours[name] for name in ours)


def test_the_loss_of_a_part_is_a_lower_bound_of_the_loss():
    """So a hopeless calibration may be given up early."""
    found = list(observe(SMALL, range(1, 2)))
    assert len(found) == NUM_OBSERVATIONS == 14
    losses = [loss(found[: count + 1]) for count in range(len(found))]
    assert losses == sorted(losses)
    assert loss_of(SMALL, range(1, 2)) == losses[-1] and loss_of(SMALL, range(1, 2), give_up_at=losses[0] / 2) == float(
        "inf"
    )
    assert Observation("slack", 0.2, 0.24).error == pytest.approx(0.04) and Observation(
        "A0", 1.5, 1.65
    ).error == pytest.approx(0.1)


def test_parameters_draw_only_what_is_possible_and_go_there_and_back():
    """Free parameters: at least φ ≥ 0 in every row. A calibration's file is the same point again."""
    rng = random.Random(1)
    for _ in range(20):
        point = parameters.near(parameters.draw(rng), 0.1, rng)
        assert parameters.is_possible(point)
        again = parameters.point_of(parameters.calibration_of(point))
        spare = {"power"} if point["family"] == "hyperbolic" else set()
        assert {key: again[key] for key in again if key not in spare} == pytest.approx(
            {key: point[key] for key in point if key not in spare}
        )
    assert parameters.NUM_FREE == 17


def test_the_large_run_is_predicted_from_a_calibration():
    found = predict(rows.calibration("f2"), range(1, 2))
    assert found["A0"]["paper"] == pytest.approx(1.784, abs=0.001) and found["A0"]["ours"] > found["C0"]["ours"] > 0.9


def test_the_command_answers_in_json_and_draws(tmp_path):
    """A10, D15: `gyre simulate SPEC --json --plot`, through the `gyre` command itself."""
    spec, picture = tmp_path / "s.toml", tmp_path / "p.svg"
    spec.write_text(
        "[scheduler]\ncells = 4\ngroup_size = 2\ngroups_per_step = 2\n[cluster]\n[horizon]\nsteady_steps = 8\n"
    )
    command = [
        sys.executable,
        "-m",
        "gyre.cli.main",
        "simulate",
        str(spec),
        "--seeds",
        "2",
        "--json",
        "--plot",
        str(picture),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert len(answer["runs"]) == 2 and answer["mean"]["step_h"] > 0
    assert picture.read_text().startswith("<svg") and picture.read_text().count("<rect") > 10


@pytest.mark.parametrize(
    "text",
    [
        'name = "\\u001b[31mx"\n',
        '[cluster]\n"\\u001b[31mx" = 1\n',
        '[workload]\nagent = "\\u001b[31mx"\nkind = "agent_runs"\n',
    ],
)
def test_no_text_of_a_specification_moves_a_terminal(tmp_path, text):
    """Bad input: names and unknown fields are somebody's words; what is said of them has no control character."""
    spec = tmp_path / "s.toml"
    spec.write_text(text)
    command = [sys.executable, "-m", "services.scheduler.simulator", str(spec), "--seeds", "1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == 2 and "31mx" in done.stderr and "\x1b" not in done.stderr + done.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["--ablation", "--set", "scheduler.cells=4", "--seed", "1"],
            "--set, --seed of a SPEC.toml do not go with --ablation",
        ),
        (["--ablation", "--plot", "p.svg", "--limit", "3600"], "--plot, --limit of a SPEC.toml"),
        (
            ["s.toml", "--quick", "--calibration", "f1"],
            "--calibration, --quick of --ablation do not go with a SPEC.toml",
        ),
        (["s.toml", "--ablation"], "either a SPEC.toml or --ablation"),
    ],
)
def test_options_that_would_change_nothing_are_refused(arguments, said):
    """Bad input: each option belongs to one of the two forms, also where it is given its default."""
    done = CliRunner().invoke(simulate_command, arguments)
    assert done.exit_code == 2 and said in " ".join(done.output.split())


def test_every_option_belongs_to_a_form():
    """A new option has to be put to the one form or to both."""
    options = {p.name for p in simulate_command.params if isinstance(p, click.Option)}
    assert options - OF_SPEC.keys() - OF_ABLATION.keys() == {"seeds", "as_json", "is_ablation"}


def test_an_impossible_specification_is_a_user_error(tmp_path):
    """Bad input: exit code 2, one line, no traceback."""
    spec = tmp_path / "s.toml"
    spec.write_text("[scheduler]\nextra_depth_steps = -1.0\n")
    for arguments in ([str(spec)], [str(tmp_path / "none.toml")], ["--ablation", "--calibration", "f9"], []):
        command = [sys.executable, "-m", "services.scheduler.simulator", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=240)
        assert done.returncode == 2 and done.stderr and "Traceback" not in done.stderr

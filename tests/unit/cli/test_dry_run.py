"""`gyre dry-run`: what is pretended, what is refused, what is compared."""

import json
import tomllib
from pathlib import Path
from statistics import fmean, pstdev

import msgspec
import pytest
from click.testing import CliRunner

from gyre import records as r
from gyre.cli.dryrun.configure import calls_of, emulated, variants
from gyre.cli.dryrun.environment import EmulatedEnvironment, Members, tasks
from gyre.cli.dryrun.measure import Timeline, compared, measured
from gyre.cli.dryrun.predict import specification
from gyre.cli.dryrun.processes import emulated_stages
from gyre.cli.dryrun.workload import works_s
from gyre.cli.main import exit_code, gyre
from gyre.cli.training.progress import Progress
from gyre.config.load import parse
from gyre.config.sections import EmulationConfig
from gyre.errors import ConfigError
from gyre.supervisor.plan import stages

EXAMPLES = Path(__file__).parents[3] / "examples" / "dry-run"
TREE = {
    "model": {"path": "emulated"},
    "scheduler": {"cells": 4, "steps_per_publish": 2, "extra_depth_steps": 0.5, "group_size": 4, "groups_per_step": 2},
    "trajproc": {"turns_per_step": 32},
    "tasks": {"wall_s": 7200.0},
    "emulation": {"time_scale": 720.0},
}


def config(**sections):
    return parse(TREE | sections, "test")


def with_variants(*given: dict) -> dict:
    return TREE | {"emulation": {"variants": list(given)}}


def test_the_work_of_a_group_is_lognormal_correlated_and_follows_from_its_seed_alone():
    """Dry run: ln-σ .5 with a third of the variance in common: groups' means then vary by √(σ²·(r + (1−r)/N)) = .35."""
    import math

    given = EmulationConfig(work_median_s=1000.0, work_sigma=0.5, group_share=1 / 3)
    logs = [[math.log(work) for work in works_s(given, seed, 4)] for seed in range(2000)]
    assert works_s(given, 7, 4) == works_s(given, 7, 4) != works_s(given, 8, 4)
    flat = [log for group in logs for log in group]
    # The standard errors of 2000 groups: .5·√(1/2000) = .011 at most of the mean, .01 of the deviations.
    assert fmean(flat) == pytest.approx(math.log(1000.0), abs=0.04)
    assert pstdev(flat) == pytest.approx(0.5, abs=0.03)
    assert pstdev([fmean(group) for group in logs]) == pytest.approx(0.5 * (1 / 3 + 2 / 3 / 4) ** 0.5, abs=0.03)


async def test_an_execution_makes_its_calls_of_equal_work_and_ends():
    """Dry run: what the engine is told of all calls together is the execution's work."""
    chosen = emulated(config(), Path("m"))
    task = next(tasks("train", 1, 5))
    members = Members(chosen)
    first, second = members(task), members(task)
    assert isinstance(first, EmulatedEnvironment)
    said = [(await first.reset())[0]["content"]]
    for _ in range(chosen.emulation.calls):
        result = await first.step(None)
        said.append(result.content)
    assert result.done
    total_s = sum(float(text.removeprefix("work=").removesuffix("s")) for text in said[:-1])
    assert total_s == pytest.approx(works_s(chosen.emulation, task.seed, 4)[0], abs=0.01)
    assert (await first.score()).outcome != (await second.score()).outcome


def test_an_emulated_run_keeps_the_policy_and_scales_every_time_of_the_workload():
    """Dry run: hours become seconds, B, N, μ, φ stay, leases (of real processes) too; nothing of the model is used."""
    given = config()
    chosen = emulated(given, Path("/tmp/m"))
    assert chosen.tasks.wall_s == 10.0 and chosen.scheduler.aging_s == pytest.approx(600 / 720)
    assert chosen.rollout.lease_s == given.rollout.lease_s
    for name in ("cells", "groups_per_step", "group_size", "steps_per_publish", "extra_depth_steps", "mode"):
        assert getattr(chosen.scheduler, name) == getattr(given.scheduler, name)
    assert chosen.emulation.calls == calls_of(given) == 4, "32 turns of 8 executions"
    assert parse(msgspec.to_builtins(chosen), "stored") == chosen, "the run's folder stores it"


def test_cells_are_two_processes_and_training_never_starts_an_emulated_one():
    """Dry run: the plan of a real run names nothing emulated."""
    chosen = emulated(config(), Path("m"))
    names = [process.name for stage in emulated_stages(chosen, "run", "python", "a:1", "k") for process in stage]
    assert names == ["ledger", "scheduler", "trajproc", "rollout", "cell-0", "trainer-0", "environment-emulated-0"]
    real = [
        word for stage in stages(config(), "run", "python", "a:1", "k") for process in stage for word in process.command
    ]
    assert not any("emulated" in word or "dryrun" in word for word in real)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([{"name": "a", "role": "ours"}, {"name": "a"}], "different names"),
        ([{"name": "a"}, {"name": "b"}], "exactly one .* role `ours`, not 0"),
        ([{"name": "a", "role": "ours"}, {"name": "b", "scheduler": {"steps_per_publish": 1}}],
         "`b` has 0.5 steps.*`a` 1; extra_depth_steps = 1 would make it so"),
        ([{"name": "a", "role": "ours"}, {"name": "b", "scheduler": {"steps_per_publish": 8}}], "steps_per_publish is at most 3"),
        ([{"name": "a", "role": "ours", "scheduler": {"cels": 1}}], "did you mean `scheduler.cells`"),
        ([{"name": "a", "role": "ours", "scheduler": {"mode": "async"}}], "fixed split"),
        ([{"name": "a", "rol": "ours"}], r"variants\[0\]\.rol.*did you mean `emulation.variants\[0\]\.role`"),
    ],
)  # fmt: skip
def test_variants_that_cannot_be_compared_are_refused_with_what_would_be_right(given, said):
    """Bad input."""
    with pytest.raises(ConfigError, match=said) as found:
        variants(with_variants(*given), "test")
    assert exit_code(found.value) == 2


@pytest.mark.parametrize(
    ("emulation", "said"),
    [
        ({"work_median_s": 7200.0}, "not below tasks.wall_s 7200.*say in .emulation. how long yours are"),
        ({"time_scale": 10000.0}, "makes an execution of 4000 s last 0.4 s.*at most 4000 is possible"),
    ],
)
def test_a_workload_that_does_not_suit_the_run_is_refused(emulation, said):
    """Bad input: the defaults speak of hours, and a second is the least that an execution may last."""
    with pytest.raises(ConfigError, match=said):
        variants(TREE | {"emulation": emulation}, "test")


@pytest.mark.parametrize(
    ("emulation", "said"),
    [
        ({"work_sigma": 1000.0}, r"<= 5\.0 .*work_sigma"),
        ({"into_training_s": 1e12}, r"<= 86400\.0 .*into_training_s"),
        ({"group_training_s": 1e12}, "group_training_s"),
        ({"load_curve": "power", "load_p": 2.0}, r"<= 1\.0 .*load_p"),
        ({"load_curve": "power", "load_a": 0.0}, "load_a 0 .*at least 0.001"),
    ],
)
def test_what_could_not_be_emulated_or_predicted_is_refused_before_anything_starts(emulation, said):
    """Bad input: the simulator is asked at the end, when hours have been spent; its bounds are those of the configuration."""
    with pytest.raises(ConfigError, match=said):
        variants(TREE | {"emulation": emulation}, "test")


def test_a_file_that_is_none_is_a_user_error(tmp_path):
    """Bad input: exit code 2 and one line; nothing was started."""
    result = CliRunner().invoke(gyre, ["dry-run", str(tmp_path / "none.toml")])
    assert isinstance(result.exception, ConfigError) and "no such file" in str(result.exception)


def test_hours_are_counted_from_the_first_dispatch_to_the_last_update():
    """Dry run: 20 s at 720 are 4 h."""
    chosen = emulated(config(run={"steps": 2}), Path("m"))
    timeline, progress = Timeline(), Progress()
    for fact in (
        r.GroupDispatched(group_id="g", execution_ids=["g-e0"], task_type="t", tenant="d", purpose="train", tier="all",
                          policy_version=0, queue_wait_s=0.0, promotions=0, at_s=1000.0),
        r.StepUpdated(step=0, version=1, burst=0, sample_ids=[], micro_cells={}, metrics={"compute_s": 30.0}, opened_at_s=0.0, at_s=1008.0),
        r.StepUpdated(step=1, version=2, burst=0, sample_ids=[], micro_cells={}, metrics={"compute_s": 10.0}, opened_at_s=0.0, at_s=1020.0),
    ):  # fmt: skip
        timeline.apply(fact)
        progress.apply(fact)
    row = measured(timeline, progress, chosen)
    assert row["wall_h"] == 4.0 and row["training_share"] == 0.5, "40 cell-seconds of 4 cells in 20 s"


def test_the_simulator_is_asked_under_the_cap_of_age_of_the_run():
    """Dry run: a batch is held open for a group in its last admissible step, also in the prediction (C8)."""
    given = specification(config(trajproc={"turns_per_step": 32, "age_steps_max": 3}))
    assert given["training"]["age_steps_max"] == 3


def test_speedups_compare_with_the_baseline_that_is_meant():
    """Dry run: of tuned baselines the best counts; the error is the largest of all rows."""
    rows = [
        {"role": "ours", "mode": "elastic", "wall_h": 10.0, "error": -0.02},
        {"role": "paper", "mode": "async", "wall_h": 15.0, "error": 0.05},
        {"role": "paper", "mode": "colocate", "wall_h": 14.0, "error": None},
        {"role": "tuned", "mode": "async", "wall_h": 11.0, "error": 0.01},
        {"role": "tuned", "mode": "colocate", "wall_h": 12.0, "error": -0.07},
    ]
    assert compared(rows) == {
        "speedup_over_async": 1.5, "speedup_over_colocate": 1.4, "speedup_over_tuned": 1.1, "error_vs_simulator": 0.07,
    }  # fmt: skip
    assert compared(rows[:1])["speedup_over_tuned"] is None


@pytest.mark.parametrize("file", sorted(EXAMPLES.glob("*.toml")), ids=lambda file: file.stem)
def test_the_examples_can_be_dry_run(file):
    """Dry run: every variant's configuration and specification can be made."""
    tree = tomllib.loads(file.read_text()) | {"model": {"path": "emulated"}}
    for variant in variants(tree, str(file)):
        assert emulated(variant.config, Path("m")).emulation.calls >= 1
        json.dumps(specification(variant.config))

"""`gyre simulate`: one specification, or the paper's ablation. Answers on stdout, progress on stderr."""

import sys
from pathlib import Path

import click
import msgspec

from gyre.cli.main import EXIT_INTERRUPTED, exit_code
from gyre.cli.options import apply_override, print_json
from gyre.cli.screen import line, paragraphs
from gyre.config.load import refuse_unknown
from gyre.errors import GyreError, InvalidInput
from services.scheduler.planner import planner_of
from services.scheduler.simulator import report
from services.scheduler.simulator.rows import DEFAULT_CALIBRATION, calibration
from services.scheduler.simulator.run import traced
from services.scheduler.simulator.spec import Spec, parse
from services.scheduler.simulator.sweep import progress, run_all, within

SEEDS, SEEDS_MAX = 3, 10_000
OF_SPEC = {"overrides": "--set", "seed": "--seed", "plot": "--plot", "limit_s": "--limit"}
OF_ABLATION = {"calibration_name": "--calibration", "quick": "--quick"}
"""Options that only the one or the other form reads; both have --seeds and --json."""
LIMIT_S = 3600.0
NOT_SIMULATED = frozenset({
    "anneal_steps", "anneal_to", "cell_capacity", "evaluation_concurrency_max", "evaluations_max", "snapshot_facts", "starvation_s",
    "tenant_weights",
})  # fmt: skip
"""Of a run's [scheduler], which a specification may have as it is. Whoever sets one of them would wait for an effect."""


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("spec_file", metavar="[SPEC.toml]", type=click.Path(path_type=Path), required=False)
@click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="SECTION.FIELD=VALUE",
    help="Override one field of SPEC; may be repeated.",
)
@click.option(
    "--seeds", type=click.IntRange(1, SEEDS_MAX), help=f"How many seeds to run: {SEEDS} by default, 5 with --ablation."
)
@click.option(
    "--seed", type=int, default=1, show_default=True, help="The first of them (of SPEC; the ablation has its own)."
)
@click.option(
    "--plot",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Of SPEC: write a picture (SVG) of the first seed: roles, waterlevel, staleness.",
)
@click.option(
    "--limit",
    "limit_s",
    type=click.FloatRange(min=0, min_open=True),
    default=LIMIT_S,
    show_default=True,
    help="Of SPEC: seconds that one seed's run may take.",
)
@click.option("--json", "as_json", is_flag=True, help="JSON for programs; with --ablation one object a line.")
@click.option("--ablation", "is_ablation", is_flag=True, help="The paper's table instead of SPEC.")
@click.option(
    "--calibration",
    "calibration_name",
    default=DEFAULT_CALIBRATION,
    show_default=True,
    help="Of the ablation: a name or a .toml file.",
)
@click.option("--quick", is_flag=True, help="Of the ablation: without the search for each mode's best.")
def simulate_command(
    spec_file: Path | None, overrides: tuple[str, ...], seeds: int | None, seed: int, plot: Path | None, limit_s: float, as_json: bool,
    is_ablation: bool, calibration_name: str, quick: bool,
) -> None:  # fmt: skip
    """Simulate SPEC.toml, or the paper's ablation, with the scheduler's own policy in virtual time."""
    if is_ablation == (spec_file is not None):
        raise click.UsageError("give either a SPEC.toml or --ablation")
    _refuse_foreign(is_ablation)
    if is_ablation:
        _ablation(calibration_name, seeds, as_json, not quick)
    else:
        _one(_load(spec_file, overrides), seeds or SEEDS, seed, plot, limit_s, as_json)


def _refuse_foreign(is_ablation: bool) -> None:
    """Raises UsageError for options that the other form has: they would change nothing, and nobody would know."""
    source = click.get_current_context().get_parameter_source
    foreign = [
        option
        for name, option in (OF_SPEC if is_ablation else OF_ABLATION).items()
        if source(name) is click.core.ParameterSource.COMMANDLINE
    ]
    if foreign and is_ablation:
        raise click.UsageError(
            f"{', '.join(foreign)} of a SPEC.toml do not go with --ablation: its rows and first seed are given, its cluster is --calibration"
        )
    if foreign:
        raise click.UsageError(f"{', '.join(foreign)} of --ablation do not go with a SPEC.toml")


def _load(path: Path, overrides: tuple[str, ...]) -> Spec:
    try:
        tree = msgspec.toml.decode(path.read_bytes())
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidInput(f"{path}: cannot be read: {error}") from error
    for override in overrides:
        apply_override(tree, override)
        section, _, field = override.partition("=")[0].strip().partition(".")
        if section == "scheduler" and field in NOT_SIMULATED:
            instead = "; a cell holds cluster.slots_per_node times its nodes" if field == "cell_capacity" else ""
            raise InvalidInput(f"--set {override}: scheduler.{field} changes nothing that is simulated{instead}")
    refuse_unknown(tree, Spec, str(path))
    return parse(tree)


def _one(spec: Spec, seeds: int, first: int, plot: Path | None, limit_s: float, as_json: bool) -> None:
    runs = range(first, first + seeds)
    if plot is not None:
        _try_to_write(plot)
    found = run_all([("run", spec, seed) for seed in runs], progress(spec.name or "simulation"), limit_s=limit_s)
    results = [found["run", seed] for seed in runs]
    if plot is not None:
        from services.scheduler.simulator.picture import draw

        with within(limit_s):
            trace = traced(spec, first, planner_of(spec))[1]
        plot.write_text(draw(spec, trace))
    if as_json:
        print_json(
            {
                "name": spec.name,
                "seeds": list(runs),
                "mean": report.mean_of(results),
                "runs": [msgspec.to_builtins(r) for r in results],
            }
        )
    else:
        click.echo(report.of_runs(spec, results))
    if plot is not None:
        click.echo(line(f"picture: {plot}"), err=True)


def _try_to_write(path: Path) -> None:
    """Raises OSError before anything is simulated rather than after; leaves what is there as it is."""
    was_there = path.exists()
    path.touch()
    if not was_there:
        path.unlink()


def _ablation(name: str, seeds: int | None, as_json: bool, is_tuned: bool) -> None:
    from services.scheduler.simulator.ablation import SEEDS as ABLATION_SEEDS
    from services.scheduler.simulator.ablation import ablation

    objects = ablation(calibration(name), seeds or ABLATION_SEEDS, is_tuned)
    if as_json:
        for row in objects:
            click.echo(msgspec.json.encode(row))
    else:
        click.echo(report.of_ablation(list(objects)))


def main() -> None:
    """Errors and exit codes as of `gyre`."""
    try:
        simulate_command(prog_name="gyre simulate", standalone_mode=False)
    except click.exceptions.Exit as stop:
        raise SystemExit(stop.exit_code) from None
    except click.ClickException as error:
        error.show()
        raise SystemExit(error.exit_code) from None
    except GyreError as error:
        print(paragraphs(f"gyre: {error}"), file=sys.stderr)
        raise SystemExit(exit_code(error)) from None
    except OSError as error:
        print(f"gyre: {error.filename or 'output'}: {error.strerror}", file=sys.stderr)
        raise SystemExit(2) from None
    except (click.Abort, KeyboardInterrupt):
        raise SystemExit(EXIT_INTERRUPTED) from None


if __name__ == "__main__":
    main()

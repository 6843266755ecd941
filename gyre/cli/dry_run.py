"""`gyre dry-run CONFIG`: what a configuration will do, before any compute is spent on it."""

import asyncio
import time
from pathlib import Path
from typing import Any

import click

from gyre.cli.options import config_arguments, json_option, print_json, run_dir_option
from gyre.cli.signals import until_told


@click.command("dry-run")
@config_arguments
@run_dir_option
@json_option
def dry_run(config_file: Path, overrides: tuple[str, ...], run_dir: Path | None, as_json: bool) -> None:
    """Run CONFIG on the real services and bus with emulated cells, environments and trainers, which only wait, in scaled time.

    Shows how long steps take, how stale samples get and what cells do, and how far the simulator agrees. What is pretended (work, speed, costs)
    stands in [emulation]; where it names variants, they are run one after the other and compared. No model and no GPU is needed.
    """
    from gyre.cli.dryrun.configure import load_dry, variants

    found = variants(load_dry(config_file, overrides), str(config_file))
    config = found[0].config
    name = config_file.stem if len(found) > 1 else config.run.name
    folder = run_dir or Path(config.run.directory) / f"dry-{name}-{time.strftime('%Y%m%d-%H%M%S')}"
    result = asyncio.run(until_told(_dry_run(found, folder)))
    if as_json:
        print_json(result)
    else:
        _show(result)


async def _dry_run(found: list, folder: Path) -> dict[str, Any]:
    from gyre.cli.dryrun.compare import compare
    from gyre.cli.training.drive import write_json

    click.echo(f"dry run in {folder}", err=True)
    result = await compare(found, folder, lambda text: click.echo(text, err=True))
    write_json(folder / "dry-run.json", result)
    return result


def _show(result: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    rows = result["variants"]
    ours = next(row["wall_h"] for row in rows if row["role"] == "ours")
    table = Table(
        title=f"{result['steps']} steps, mean staleness {result['staleness_law']:g}; hours of the workload, "
        f"{result['time_scale']:g} seconds in one"
    )
    heads = (
        "",
        "mode",
        "μ",
        "φ",
        "hours",
        "to ours",
        "simulator",
        "error",
        "staleness",
        "timed out",
        "training",
        "moves",
    )
    for head in heads:
        table.add_column(head, justify="left" if head in ("", "mode") else "right")
    for row in rows:
        simulated = ("–", "–") if row["simulated_h"] is None else (f"{row['simulated_h']:.2f}", f"{row['error']:+.1%}")
        table.add_row(
            row["name"], row["mode"], str(row["steps_per_publish"]), f"{row['extra_depth_steps']:g}", f"{row['wall_h']:.2f}",
            f"{row['wall_h'] / ours:.3f}", *simulated, f"{row['staleness_mean']:.2f} (max {row['staleness_max']})",
            f"{row['timed_out_share']:.1%}", f"{row['training_share']:.0%}", str(row["role_changes"]),
        )  # fmt: skip
    console = Console()
    console.print(table)
    for key, what in (
        ("speedup_over_async", "speed-up over async as published"),
        ("speedup_over_colocate", "speed-up over colocate as published"),
        ("speedup_over_tuned", "speed-up over the best tuned baseline"),
        ("error_vs_simulator", "largest difference from the simulator"),
    ):
        if result[key] is not None:
            console.print(f"{what}: {result[key]:.3f}")

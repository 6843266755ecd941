"""`gyre compact`: delete what is old and in no balance."""

from pathlib import Path

import click

from gyre.cli.asking import run_ledger
from gyre.cli.options import find_run, json_option, print_json, run_option
from gyre.clock import clock_of_run

DAY_S = 86_400.0


@click.command()
@click.option(
    "--older-than",
    "days",
    type=click.FloatRange(min=0),
    default=30.0,
    show_default=True,
    metavar="DAYS",
    help="What ended longer ago.",
)
@run_option
@json_option
def compact(days: float, run_folder: Path | None, as_json: bool) -> None:
    """Delete call rows of samples that were trained or dropped, and spans, that ended more than DAYS ago; also while the run goes on.

    Books, bills, balances, evidence and lineage stay as they are: of call rows their counts are kept. `gyre explain` of such a sample shows no calls,
    `gyre trace` no spans.
    """
    folder = find_run(run_folder)
    told = run_ledger(folder, f"--compact={clock_of_run(folder.root).now_s() - days * DAY_S!r}")
    if as_json:
        print_json(told)
    else:
        click.echo(f"{told['calls']:,} call rows of {told['samples']:,} samples and {told['spans']:,} spans deleted")

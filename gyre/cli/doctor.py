"""`gyre doctor`: the six known illnesses of online training, each with its evidence and its remedy (D13)."""

from pathlib import Path

import click

from gyre.cli.asking import ask_ledger
from gyre.cli.options import find_run, json_option, print_json, run_option
from gyre.cli.screen import clean

COLOURS = {"ill": "red", "well": "green", "unknown": "yellow"}


@click.command()
@run_option
@json_option
def doctor(run_folder: Path | None, as_json: bool) -> None:
    """Look for reward drift, exploration noise, process-reward gaming, value divergence, storage overflow and sampling lag; exit code 1 when ill.

    Each is judged from the books of the run, live or over: what was measured beside the line from which on it is an illness, and what to do.
    `unknown` says what is not there yet to judge by.
    """
    answer = ask_ledger(find_run(run_folder), "doctor")
    if as_json:
        print_json(answer)
    else:
        for one in clean(answer["illnesses"]):
            _show(one)
    if answer["ill"]:
        raise SystemExit(1)


def _show(one: dict) -> None:
    mark = click.style(f"{one['state']:<7}", fg=COLOURS[one["state"]])
    alarms = "".join(f"; alarm {kind} {count} times" for kind, count in one["alarms"].items())
    click.echo(f"{mark}  {one['illness']}: {one['figure']}{alarms}")
    if one["state"] != "ill":
        return
    for found in one["evidence"]:
        if found["is_over"]:
            click.echo(f"         {found['what']}: {found['value']:.4g}, line {found['line']:g}")
    click.echo(f"         remedy: {one['remedy']}")

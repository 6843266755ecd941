"""`gyre bill`: which customer's which kind of task, on which weights, cost how much, and how much extra through retries."""

from pathlib import Path
from typing import Any

import click

from gyre.cli.asking import ask_ledger
from gyre.cli.options import find_run, json_option, print_json, run_option
from gyre.cli.screen import clean


@click.command()
@click.option(
    "--by", metavar="DIMENSION,…",
    help="Any of tenant, task_type, task, environment, purpose, model_version, attempt; by default tenant,task_type,model_version.",
)  # fmt: skip
@run_option
@json_option
def bill(by: str | None, run_folder: Path | None, as_json: bool) -> None:
    """What it cost: turns, tokens, training, occupancy, external calls; retries' extra cost in columns of its own.

    An attempt that several weight versions sampled is shared out by its tokens. Money is shown where `[ledger.prices]` is set.
    """
    names = [name.strip() for name in (by or "").split(",") if name.strip()]
    answer = ask_ledger(find_run(run_folder), "bill", *names)
    if as_json:
        print_json(answer)
        return
    for line in table(clean(answer)):
        click.echo(line)


def table(answer: dict[str, Any]) -> list[str]:
    """Columns of dimensions to the left, of measures to the right; columns without a figure are left out."""
    columns = [name for name in answer["columns"] if answer["total"][name]] or answer["columns"]
    names = [*answer["by"], *columns]
    cells = [names]
    cells += [[_text(row[name]) for name in names] for row in answer["rows"]]
    if answer["by"]:
        cells += [["total", *[""] * (len(answer["by"]) - 1), *[_text(answer["total"][name]) for name in columns]]]
    widths = [max(len(row[place]) for row in cells) for place in range(len(names))]
    left = len(answer["by"])
    return [
        "  ".join(
            text.ljust(width) if place < left else text.rjust(width)
            for place, (text, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in cells
    ]


def _text(value: Any) -> str:
    if value is None:
        return "none"
    return f"{value:,.2f}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)

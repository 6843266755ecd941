"""`gyre train CONFIG`: one run from model to audit, with its progress shown."""

import asyncio
import contextlib
from pathlib import Path
from typing import Any

import click

from gyre.cli.options import (
    config_arguments,
    json_option,
    load_config,
    new_run_folder,
    print_json,
    run_dir_option,
    typed,
)
from gyre.cli.screen import line, paragraphs
from gyre.cli.signals import until_told
from gyre.tasks import end

LINE_EVERY_S = 5.0
PANEL_PER_S = 2.0
NEXT = {
    "explorer": "in a browser",
    "audit": "do the books balance?",
    "doctor": "is training ill?",
    "drops": "what was not trained, and why",
}
"""Questions to a run that is over, for who does not know them yet."""


@click.command()
@config_arguments
@run_dir_option
@click.option("--summary", type=click.Path(path_type=Path, dir_okay=False), help="Write the JSON summary here as well.")
@json_option
def train(
    config_file: Path, overrides: tuple[str, ...], run_dir: Path | None, summary: Path | None, as_json: bool
) -> None:
    """Train the agent of CONFIG: make the model, start the services, evaluate, train, evaluate, audit, stop.

    Exit code 0 when the run went through and its audit passes, 1 when not, 2 for something to correct. Ctrl-C stops all in order.
    """
    config = load_config(config_file, overrides)
    result = asyncio.run(until_told(_train(config, run_dir, as_json)))
    if summary is not None:
        from gyre.cli.training.drive import write_json

        summary.parent.mkdir(parents=True, exist_ok=True)
        write_json(summary, result)
    if not all(result["audit"].values()):
        raise SystemExit(1)


async def _train(config, run_dir: Path | None, as_json: bool) -> dict[str, Any]:
    from rich.console import Console

    from gyre.cli.training.drive import Driver
    from gyre.cli.training.panel import show_summary

    console = Console(stderr=True)
    folder = new_run_folder(config, run_dir)
    is_live = console.is_terminal and not as_json
    driver = Driver(
        config,
        folder,
        lambda text: (
            console.log(paragraphs(text), highlight=False, markup=False)
            if is_live
            else click.echo(paragraphs(text), err=True)
        ),
    )
    click.echo(f"run folder {folder.root}", err=True)
    showing = asyncio.create_task(_panel(driver, console) if is_live else _lines(driver))
    try:
        result = await driver.run()
    finally:
        await end(showing)
    if as_json:
        print_json(result)
    else:
        show_summary(Console(), result)
        for line_of_help in what_next(folder.root):
            click.echo(line_of_help)
    return result


def what_next(root: Path) -> list[str]:
    """Where the run is, and what answers about it, to be typed as it stands."""
    commands = {typed(name, root=root): about for name, about in NEXT.items()}
    width = max(map(len, commands))
    return [
        f"The run is in {root}. Ask it:",
        *(f"  {command:<{width}}  {about}" for command, about in commands.items()),
    ]


async def _lines(driver) -> None:
    """One line every few seconds, when there is something new."""
    last = ""
    while True:
        await asyncio.sleep(LINE_EVERY_S)
        if driver.progress.facts and (shown := driver.view.line()) != last:
            click.echo(line(shown), err=True)
            last = shown


async def _panel(driver, console) -> None:
    from rich.live import Live

    await driver.begun.wait()
    with (
        Live(console=console, auto_refresh=False, transient=False) as live,
        contextlib.suppress(asyncio.CancelledError),
    ):
        while True:
            live.update(driver.view.render(), refresh=True)
            await asyncio.sleep(1 / PANEL_PER_S)

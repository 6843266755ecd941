"""`gyre up CONFIG`: the services, without a driver; tasks come by gRPC."""

import asyncio
from pathlib import Path

import click
import msgspec

from gyre.cli.options import config_arguments, json_option, load_config, new_run_folder, print_json, run_dir_option
from gyre.cli.screen import paragraphs
from gyre.cli.signals import until_told
from gyre.config import Config
from gyre.run_folder import RunFolder


@click.command()
@config_arguments
@run_dir_option
@json_option
def up(config_file: Path, overrides: tuple[str, ...], run_dir: Path | None, as_json: bool) -> None:
    """Start bus, services, cells and environments of CONFIG and keep them running until Ctrl-C or SIGTERM.

    The same --run-dir again goes on where that run stopped.
    """
    config = load_config(config_file, overrides)
    folder = new_run_folder(config, run_dir)
    asyncio.run(until_told(_up(config, folder, as_json)))


async def _up(config: Config, folder: RunFolder, as_json: bool) -> None:
    from gyre.cli.training.model import prepare
    from gyre.supervisor import Supervisor

    def say(text: str) -> None:
        click.echo(paragraphs(text), err=True)

    folder.make()
    path = await prepare(config, folder, say)
    config = msgspec.structs.replace(config, model=msgspec.structs.replace(config.model, path=str(path)))
    async with Supervisor(folder, config, say) as supervisor:
        endpoints = {name: folder.endpoint(name) for name in ("scheduler", "rollout", "gateway", "ledger")}
        if as_json:
            print_json({"run": str(folder.root), "endpoints": endpoints, "processes": supervisor.children()})
        else:
            click.echo(f"run {folder.root} is up: " + ", ".join(f"{name} {at}" for name, at in endpoints.items()))
        await supervisor.failed()

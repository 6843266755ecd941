"""`gyre bench NAME`: the benchmarks of the source tree, one process each."""

import os
import sys
from importlib.util import find_spec

import click

from gyre.errors import NotFound


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("name")
@click.argument("options", nargs=-1, type=click.UNPROCESSED)
def bench(name: str, options: tuple[str, ...]) -> None:
    """Measure a part: `gyre bench scheduler --json`. Other options go to the benchmark (`gyre bench NAME -- --help`)."""
    module = f"benchmarks.{name}"
    if not name.isidentifier() or find_spec("benchmarks") is None or find_spec(module) is None:
        raise NotFound(f"there is no benchmark `{name}`; they are the files in benchmarks/ of the source tree")
    os.execv(sys.executable, [sys.executable, "-m", module, *options])

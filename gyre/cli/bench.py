"""`gyre bench NAME`: the benchmarks of the source tree, one process each."""

import os
import sys
from importlib.util import find_spec
from pathlib import Path

import click

from gyre.errors import NotFound


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("name")
@click.argument("options", nargs=-1, type=click.UNPROCESSED)
def bench(name: str, options: tuple[str, ...]) -> None:
    """Measure a part: `gyre bench scheduler --json`. Other options go to the benchmark (`gyre bench NAME -- --help`)."""
    known = _known()
    if name not in known:
        raise NotFound(
            f"there is no benchmark `{name}`; there are: {', '.join(known) or 'none outside the source tree'}"
        )
    os.execv(sys.executable, [sys.executable, "-m", f"benchmarks.{name.replace('-', '_')}", *options])


def _known() -> list[str]:
    """The files of benchmarks/, as they are spelt on the command line."""
    package = find_spec("benchmarks")
    folders = package.submodule_search_locations if package else []
    return sorted(file.stem.replace("_", "-") for folder in folders for file in Path(folder).glob("[a-z]*.py"))

"""`gyre bench NAME`: the benchmarks of the source tree, one process each."""

import os
import sys
from pathlib import Path

import click

import gyre
from gyre.errors import NotFound

ROOT = Path(gyre.__file__).parent.parent
"""The source tree of an installation that can be edited; elsewhere there are no benchmarks beside the package."""


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("name")
@click.argument("options", nargs=-1, type=click.UNPROCESSED)
def bench(name: str, options: tuple[str, ...]) -> None:
    """Measure a part: `gyre bench scheduler --json`. Other options go to the benchmark (`gyre bench NAME -- --help`)."""
    known = sorted(file.stem.replace("_", "-") for file in (ROOT / "benchmarks").glob("[a-z]*.py"))
    if name not in known:
        raise NotFound(
            f"there is no benchmark `{name}` in {ROOT / 'benchmarks'}; there are: {', '.join(known) or 'none'}"
        )
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    os.execv(sys.executable, [sys.executable, "-m", f"benchmarks.{name.replace('-', '_')}", *options])

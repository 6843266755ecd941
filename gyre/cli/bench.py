"""`gyre bench NAME`: the benchmarks of the source tree, one process each."""

import ast
import os
import sys
from pathlib import Path

import click

import gyre
from gyre.errors import NotFound

ROOT = Path(gyre.__file__).parent.parent
"""The source tree of an installation that can be edited; elsewhere there are no benchmarks beside the package."""


class Bench(click.Command):
    """Its help names the benchmarks there are, each with its first line."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Benchmarks"):
            formatter.write_dl([(name, _about(file)) for name, file in _known().items()] or [("none", "")])


def _known() -> dict[str, Path]:
    files = sorted((ROOT / "benchmarks").glob("[a-z]*.py"))
    return {file.stem.replace("_", "-"): file for file in files}


def _about(file: Path) -> str:
    said = (ast.get_docstring(ast.parse(file.read_text())) or "").partition("\n")[0]
    return said.rpartition("`: ")[2] or said


@click.command(cls=Bench, context_settings={"ignore_unknown_options": True})
@click.argument("name")
@click.argument("options", nargs=-1, type=click.UNPROCESSED)
def bench(name: str, options: tuple[str, ...]) -> None:
    """Measure a part: `gyre bench scheduler --json`. Other options go to the benchmark (`gyre bench NAME -- --help`)."""
    if name not in (known := _known()):
        raise NotFound(
            f"there is no benchmark `{name}` in {ROOT / 'benchmarks'}; there are: {', '.join(known) or 'none'}"
        )
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    os.execv(sys.executable, [sys.executable, "-m", f"benchmarks.{name.replace('-', '_')}", *options])

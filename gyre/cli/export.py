"""`gyre export`: executions, samples, turns and drops of a run as files for other programs."""

import datetime
from pathlib import Path

import click

from gyre.cli.asking import run_ledger
from gyre.cli.options import find_run, json_option, print_json, run_option


@click.command()
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path, file_okay=False))
@click.option("--what", metavar="NAME,…", help="Any of executions, samples, turns, drops; by default all.")
@click.option(
    "--since",
    metavar="TIME",
    help="Only what happened then or later: 2026-11-30T09:00 (local time, or with an offset), or Unix seconds.",
)
@click.option("--format", "kind", type=click.Choice(["parquet"]), default="parquet", help="Format of the files.")
@run_option
@json_option
def export(
    folder: Path, what: str | None, since: str | None, kind: str, run_folder: Path | None, as_json: bool
) -> None:
    """Write DIR/executions.parquet, samples.parquet, turns.parquet and drops.parquet. Needs `pip install gyre-rl[export]`."""
    arguments = ["--export", str(folder.resolve())]
    if names := [name.strip() for name in (what or "").split(",") if name.strip()]:
        arguments += ["--what", *names]
    if since is not None:
        arguments += [f"--since={unix_seconds(since)!r}"]
    written = run_ledger(find_run(run_folder), *arguments)
    if as_json:
        print_json(written)
        return
    for about in written.values():
        click.echo(f"{about['path']}: {about['rows']:,} rows, {about['bytes']:,} bytes")


def unix_seconds(text: str) -> float:
    """A moment as people or programs write it. Raises click.BadParameter."""
    try:
        return float(text)
    except ValueError:
        pass
    try:
        return datetime.datetime.fromisoformat(text).timestamp()
    except ValueError:
        raise click.BadParameter(
            f"{text!r} is neither 2026-11-30T09:00 nor Unix seconds", param_hint="--since"
        ) from None

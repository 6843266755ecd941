"""`gyre export`: executions, samples, turns and drops of a run as files for other programs; its good executions as an offline data set (D12)."""

import datetime
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import msgspec

from gyre.cli.asking import ask_ledger, run_ledger, run_service
from gyre.cli.options import find_run, json_option, print_json, run_option, sign_of_run
from gyre.cli.screen import say
from gyre.config.load import refuse_foreign, store
from gyre.errors import Conflict
from gyre.numbers import real
from gyre.run_folder import RunFolder

DEMONSTRATIONS = "demonstrations"
DEMONSTRATIONS_FILE = f"{DEMONSTRATIONS}.jsonl"
CONFIGURATION = "config.toml"
"""Of the run, beside its data: what `gyre import` makes a run out of. Without the address of its database, which may hold a password."""
PAGE = 10_000


@click.command()
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path, file_okay=False))
@click.option(
    "--what",
    metavar="NAME,…",
    help="Any of executions, samples, turns, drops, which is all by default; and demonstrations.",
)
@click.option(
    "--since",
    metavar="TIME",
    help="Only what happened then or later: 2026-11-30T09:00 (local time, or with an offset), or Unix seconds.",
)
@click.option("--format", "kind", type=click.Choice(["parquet"]), default="parquet", help="Format of the books' files.")
@run_option
@json_option
def export(
    folder: Path, what: str | None, since: str | None, kind: str, run_folder: Path | None, as_json: bool
) -> None:
    """Write DIR/executions.parquet, samples.parquet, turns.parquet and drops.parquet. Needs `pip install gyre-rl[export]`.

    DIR/config.toml is the run's. The folder of a run, or one with a config.toml of your own, is refused.

    demonstrations: DIR/demonstrations.jsonl, the successful executions' chosen paths, token by token, for a warm start of the same tokenizer.
    """
    run = find_run(run_folder)
    _refuse_run(folder)
    names = [name.strip() for name in (what or "").split(",") if name.strip()]
    written: dict[str, Any] = {}
    if DEMONSTRATIONS in names:
        written[DEMONSTRATIONS] = _demonstrations(run, folder)
    books = [name for name in names if name != DEMONSTRATIONS]
    if books or not names:
        arguments = [f"--export={folder.resolve()}", *(f"--what={name}" for name in books)]
        if since is not None:
            arguments += [f"--since={unix_seconds(since)!r}"]
        written |= run_ledger(run, *arguments)
    config = run.config()[0]
    store(
        msgspec.structs.replace(config, ledger=msgspec.structs.replace(config.ledger, database="")),
        folder / CONFIGURATION,
    )
    if as_json:
        print_json(written)
        return
    for name, about in written.items():
        if name == DEMONSTRATIONS:
            lost = f"; {about['without_tree']:,} have no tree" if about["without_tree"] else ""
            counts = f"{about['paths']:,} paths, {about['targets']:,} targets of {about['tokens']:,} tokens"
            say(f"{about['path']}: {about['samples']:,} executions, {counts}{lost}")
        else:
            say(f"{about['path']}: {about['rows']:,} rows, {about['bytes']:,} bytes")


def _refuse_run(folder: Path) -> None:
    """Raises Conflict where an export would write over what is not its own: the configuration of a run, or somebody's."""
    if found := sign_of_run(folder):
        raise Conflict(f"{folder} is the folder of a run, as it has {found}: choose another one")
    refuse_foreign(folder / CONFIGURATION)


def _demonstrations(run: RunFolder, folder: Path) -> dict[str, Any]:
    """The ledger says which executions were good, the trajectory processor has their tokens. Raises NotFound where no trees are kept."""
    folder.mkdir(parents=True, exist_ok=True)
    file = (folder / DEMONSTRATIONS_FILE).resolve()
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as names:
        names.writelines(f"{name}\n" for name in _good(run))
        names.flush()
        return run_service("trajproc", run, "--demonstrations", names.name, str(file))


def _good(run: RunFolder) -> Iterator[str]:
    after = ""
    while True:
        page = ask_ledger(run, "good", after=after, limit=PAGE)
        yield from (sample["sample_id"] for sample in page["samples"])
        if not (after := page["next"]):
            return


def unix_seconds(text: str) -> float:
    """A moment as people or programs write it. Raises click.BadParameter."""
    try:
        return real(text)
    except ValueError:
        pass
    try:
        return datetime.datetime.fromisoformat(text).timestamp()
    except ValueError:
        raise click.BadParameter(
            f"{text!r} is neither 2026-11-30T09:00 nor Unix seconds", param_hint="--since"
        ) from None

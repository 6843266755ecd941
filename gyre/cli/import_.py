"""`gyre import`: what `gyre export` wrote as a run of its own, an offline data set (D12)."""

import os
import shutil
from pathlib import Path
from typing import Any

import click
import msgspec

from gyre.cli.asking import run_ledger
from gyre.cli.export import CONFIGURATION, DEMONSTRATIONS_FILE
from gyre.cli.options import json_option, print_json, typed
from gyre.cli.screen import say
from gyre.config import load_resolved, store
from gyre.errors import Conflict, NotFound
from gyre.run_folder import RunFolder


@click.command("import")
@click.argument("source", metavar="DIR", type=click.Path(path_type=Path, file_okay=False, exists=True))
@click.argument("folder", metavar="FOLDER", type=click.Path(path_type=Path, file_okay=False))
@json_option
def import_(source: Path, folder: Path, as_json: bool) -> None:
    """Make FOLDER, a run that is over, out of the files that `gyre export DIR` wrote: `gyre … --run FOLDER` and the explorer answer from it.

    Values are those of the files to the bit. What is not in them (steps, cells, queues) is not in FOLDER either. DIR/demonstrations.jsonl comes
    along: a warm start of the same tokenizer takes it. Needs `pip install gyre-rl[export]`.
    """
    if not (source / CONFIGURATION).exists():
        raise NotFound(f"{source} has no {CONFIGURATION}: `gyre export {source}` writes it beside the data")
    run = RunFolder(folder)
    if run.root.exists() and any(run.root.iterdir()):
        raise Conflict(f"{run.root} is not empty: import into a folder of its own")
    # Under another name until it is whole: half of it would look like a run in which little happened.
    part = RunFolder(run.root.with_name(f".{run.root.name}.part"))
    shutil.rmtree(part.root, ignore_errors=True)
    try:
        told = _import(source, part)
        os.rename(part.root, run.root)
    except BaseException:
        shutil.rmtree(part.root, ignore_errors=True)
        raise
    if as_json:
        print_json({"run": str(run.root), **told})
        return
    for name, about in told.items():
        say(f"{name}: {about['rows']:,} rows of {about['path']}")
    for name in ("books", "explorer"):
        say(typed(name, root=run.root))


def _import(source: Path, run: RunFolder) -> dict[str, Any]:
    """Make `run` out of the files in `source`; {name: {path, rows}} of what was taken in."""
    config = load_resolved(source / CONFIGURATION)[0]
    run.make()
    store(msgspec.structs.replace(config, ledger=msgspec.structs.replace(config.ledger, database="")), run.config_file)
    told = run_ledger(run, f"--import-files={source.resolve()}")
    if (source / DEMONSTRATIONS_FILE).exists():
        shutil.copyfile(source / DEMONSTRATIONS_FILE, run.root / DEMONSTRATIONS_FILE)
    return told

"""What several subcommands share: configuration with overrides, which run is meant, how answers are printed."""

import difflib
import json
import shlex
import shutil
import sys
import time
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from gyre.config import Config
from gyre.config.load import load, parse, refuse_foreign
from gyre.errors import ConfigError, NotFound
from gyre.run_folder import RunFolder

RUNS = Path("runs")


class Group(click.Group):
    """Subcommands. A name that is none of theirs is answered with the nearest that is."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        known = self.list_commands(ctx)
        if args and args[0] not in known and not args[0].startswith("-"):
            near = difflib.get_close_matches(args[0], known, n=1, cutoff=0.5)
            hint = (
                f"did you mean `{ctx.command_path} {near[0]}`?" if near else f"`{ctx.command_path} --help` lists them"
            )
            ctx.fail(f"there is no command `{args[0]}`; {hint}")
        return super().resolve_command(ctx, args)


def json_option(command: Callable) -> Callable:
    return click.option("--json", "as_json", is_flag=True, help="Print JSON for programs instead of text for people.")(
        command
    )


def run_option(command: Callable) -> Callable:
    return click.option(
        "--run",
        "run_folder",
        type=click.Path(path_type=Path),
        help="Folder of the run; the newest under runs/ by default.",
    )(command)


def config_arguments(command: Callable) -> Callable:
    """CONFIG and --set."""
    overrides = click.option(
        "--set",
        "overrides",
        multiple=True,
        metavar="SECTION.FIELD=VALUE",
        help="Override one setting; may be repeated.",
    )
    return click.argument("config_file", metavar="CONFIG", type=click.Path(path_type=Path))(overrides(command))


def run_dir_option(command: Callable) -> Callable:
    return click.option(
        "--run-dir", type=click.Path(path_type=Path), help="Folder of this run; runs/<name>-<time> by default."
    )(command)


def load_config(path: Path, overrides: tuple[str, ...]) -> Config:
    """The file with overrides applied. Raises ConfigError."""
    if not overrides:
        return load(path)
    try:
        data = tomllib.loads(path.read_text())
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from error
    for override in overrides:
        apply_override(data, override)
    return parse(data, f"{path} with --set")


def apply_override(data: dict[str, Any], override: str) -> None:
    """`trainer.lr=1e-4` → data. The value is TOML; what is no TOML value is text. Raises ConfigError."""
    name, separator, text = override.partition("=")
    path = name.strip().split(".")
    if not separator or not all(path):
        raise ConfigError(f"--set {override}: write section.field=value")
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text
    for part in path[:-1]:
        data = data.setdefault(part, {})
        if not isinstance(data, dict):
            raise ConfigError(f"--set {override}: `{part}` is no section")
    data[path[-1]] = value


def new_run_folder(config: Config, run_dir: Path | None) -> RunFolder:
    """The folder asked for, or a new one. Raises Conflict for one that holds a configuration of somebody's own."""
    if run_dir is None:
        base = Path(config.run.directory) / f"{config.run.name}-{time.strftime('%Y%m%d-%H%M%S')}"
        run_dir, count = base, 1
        while run_dir.exists():
            count += 1
            run_dir = base.with_name(f"{base.name}-{count}")
    folder = RunFolder(run_dir)
    refuse_foreign(folder.config_file)
    return folder


def typed(*words: str, root: Path) -> str:
    """A command about the run in `root`, so that it can be typed as it stands: this `gyre` by its name where a shell finds it, else by its path."""
    own = Path(sys.executable).parent / "gyre"
    if (found := shutil.which("gyre")) and own.exists() and own.samefile(found):
        called = ["gyre"]
    else:
        called = [_from_here(own)] if own.exists() else [sys.executable, "-m", "gyre.cli.main"]
    return shlex.join([*called, *words, "--run", _from_here(root)])


def _from_here(path: Path) -> str:
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)


def sign_of_run(root: Path) -> str:
    """What shows that the folder is a run's, and not only the configuration of one with its data (`gyre export`); empty where nothing does."""
    return next((name for name in ("keys", "ledger.db", "endpoints.json") if (root / name).exists()), "")


def find_run(run_folder: Path | None) -> RunFolder:
    """The folder named, or the newest under runs/. Raises NotFound, also for what `gyre export` wrote: it has a configuration, and no run."""
    if run_folder is None:
        candidates = [file for file in RUNS.glob("[!.]*/config.toml") if sign_of_run(file.parent)]
        if not candidates:
            raise NotFound(f"no run under {RUNS.resolve()}; name one with --run, or start one with `gyre train`")
        run_folder = max(candidates, key=lambda file: file.stat().st_mtime).parent
    folder = RunFolder(run_folder)
    folder.config()
    if not sign_of_run(folder.root):
        raise NotFound(
            f"{folder.root} is no run folder: it has a config.toml and nothing of a run (`gyre import` makes one of what `gyre export` wrote)"
        )
    return folder


def print_json(value: Any) -> None:
    click.echo(json.dumps(value, indent=1))

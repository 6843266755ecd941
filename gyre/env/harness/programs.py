"""A harness as data: its command line, variables and files, with places for what each execution fills in (programs.toml)."""

import functools
import os
import re
import shutil
import subprocess
import tomllib
from collections.abc import Mapping
from importlib import resources
from pathlib import Path

import msgspec

from gyre.env.harness import tree
from gyre.errors import InvalidInput

PLACES = ("base", "api", "key", "base_with_key", "api_with_key", "model", "prompt", "work", "home", "context", "output")
ROOTS = ("{home}/", "{work}/")

VERSION_S = 60.0
_PLACE = re.compile(r"\{\{|\}\}|\{([a-z_]*)\}|[{}]")


class Program(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is started, and how it finds its model."""

    command: list[str]
    goes_on: list[str] = []
    """The command that goes on with what is in home and working folder, where another attempt's process was lost; empty: nothing goes on, and no
    snapshots are taken. The same as `command` where it is sensible to begin anew in a working folder in which something was done already."""
    environment: dict[str, str] = {}
    files: dict[str, str] = {}
    """Path, below `{home}` or `{work}` → text."""

    def __post_init__(self) -> None:
        if not self.command:
            raise ValueError("command must name a program")
        for path in self.files:
            if not path.startswith(ROOTS) or ".." in Path(path).parts:
                raise ValueError(f"files: {path!r} must be below {{home}} or {{work}}")
        dummies = dict.fromkeys(PLACES, "")
        for text in (*self.command, *self.goes_on, *self.environment.values(), *self.files, *self.files.values()):
            fill(text, dummies)


def shipped() -> dict[str, Program]:
    """By the name that role rules know a harness by."""
    text = resources.files("gyre.env.harness").joinpath("programs.toml").read_text()
    return msgspec.convert(tomllib.loads(text), dict[str, Program])


def fill(text: str, values: Mapping[str, str]) -> str:
    """`{name}` replaced, `{{` and `}}` for braces. Raises ValueError for another brace: in `str.format` a value might be reached into."""

    def replaced(match: re.Match) -> str:
        if match[0] in ("{{", "}}"):
            return match[0][0]
        if match[1] not in values:
            raise ValueError(
                f"{match[0]!r} is none of {', '.join(f'{{{name}}}' for name in values)}; write {{{{ for a brace"
            )
        return values[match[1]]

    return _PLACE.sub(replaced, text)


def write_files(program: Program, values: Mapping[str, str]) -> None:
    """Readable by their owner only: there may be a key in them. Of an attempt that goes on both folders are as an agent left them, so no link in them
    is followed."""
    for path, text in program.files.items():
        root, _, below = path.partition("/")
        tree.put(fill(text, values), Path(fill(root, values)), Path(fill(below, values)), 0o600)


def found(name: str, path: str) -> str:
    """Where the program is. Raises InvalidInput."""
    if (where := shutil.which(name, path=path)) is None:
        raise InvalidInput(f"there is no program `{name}` on the path {path}")
    return where


@functools.lru_cache(maxsize=64)
def version_of(program: str, path: str) -> str:
    """What `program --version` says in its first line; empty where it says nothing."""
    try:
        done = subprocess.run(
            [program, "--version"], capture_output=True, text=True, timeout=VERSION_S, stdin=subprocess.DEVNULL,
            env={"PATH": path, "HOME": os.devnull, "LANG": "C.UTF-8"},
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return (done.stdout.strip().splitlines() or [""])[0][:100] if done.returncode == 0 else ""

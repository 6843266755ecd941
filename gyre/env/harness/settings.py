"""A harness's environment by a file, without a line of code.

name = "mend"
harness = "claude-code"                  # or a table [program] with command, environment, files
prompt = "The tests fail. Mend the package {package}."   # places are fields of the task's payload
files = "package"                        # what the working folder begins with; paths are relative to this file
hidden = "tests"                         # unittest tests that the agent never sees, run over a copy of what it left: all must pass
# check = ["node", "--test"]             # in their place a command, over which `hidden` is laid: exit code 0 is success, so its word is to be trusted

[podman]                                 # a container for each command, in place of a subprocess; fields of gyre.env.harness.podman.Image
image = "localhost/mine"

[bounds]                                 # what is not named here is HarnessEnvironment's; so with [check_bounds]
cpu_s = 600
"""

import tomllib
from pathlib import Path
from typing import Any

import msgspec

from gyre.env.environment import Score
from gyre.env.harness import tree
from gyre.env.harness.environment import HarnessEnvironment
from gyre.env.harness.podman import Image, Podman
from gyre.env.harness.programs import Program, fill
from gyre.env.harness.sandbox import Bounds, Exit, Sandbox, Subprocess
from gyre.env.harness.testing import Tests
from gyre.errors import ConfigError, InvalidInput

CHECK_CHARS = 2000


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str
    prompt: str
    check: list[str] = []
    harness: str = ""
    program: Program | None = None
    files: str = ""
    hidden: str = ""
    bounds: Bounds = HarnessEnvironment.bounds
    check_bounds: Bounds = HarnessEnvironment.check_bounds
    stall_s: float = HarnessEnvironment.stall_s
    is_relayed: bool = True
    request_bytes_max: int = HarnessEnvironment.request_bytes_max
    user: int | None = None
    """Id of the user that the harness runs as; needs root's rights. In a container that is a field of its own."""
    podman: Image | None = None
    path: str = ""


def load(file: Path) -> type[HarnessEnvironment]:
    """The environment that `file` describes. Raises ConfigError."""
    try:
        settings = msgspec.convert(_completed(tomllib.loads(file.read_text())), Settings)
    except OSError as error:
        raise ConfigError(f"{file}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise ConfigError(f"{file}: {error}") from error
    if not settings.check and not settings.hidden:
        raise ConfigError(f"{file}: nothing says what success is: give `hidden` (a folder of tests), `check`, or both")
    if settings.podman is not None and settings.user is not None:
        raise ConfigError(f"{file}: `user` is a subprocess's; a container's stands in [podman]")
    folders = {name: _folder(file, name, getattr(settings, name)) for name in ("files", "hidden")}
    return _made(settings, **folders)


def _completed(said: dict[str, Any]) -> dict[str, Any]:
    """Bounds that a table leaves out are the environment's own, not those of any command."""
    given = {name: said[name] for name in ("bounds", "check_bounds") if isinstance(said.get(name), dict)}
    return said | {
        name: msgspec.to_builtins(getattr(HarnessEnvironment, name)) | table for name, table in given.items()
    }


def said_of(found: Tests) -> dict[str, Any]:
    """Evidence."""
    counts = {"passed": found.passed, "failed": found.failed, "excused": found.excused, "failures": found.failures}
    return {"check": found.exit.how, "code": found.exit.code, "said": found.exit.tail[-CHECK_CHARS:]} | counts


def _folder(file: Path, name: str, text: str) -> Path | None:
    if not text:
        return None
    if not (folder := (file.parent / text).resolve()).is_dir():
        raise ConfigError(f"{file}: {name} is {text!r}; {folder} is no folder")
    return folder


def _made(settings: Settings, files: Path | None, hidden: Path | None) -> type[HarnessEnvironment]:
    class Described(HarnessEnvironment):
        name = settings.name
        harness, program, path = settings.harness, settings.program, settings.path
        bounds, check_bounds, stall_s = settings.bounds, settings.check_bounds, settings.stall_s
        is_relayed, request_bytes_max = settings.is_relayed, settings.request_bytes_max

        def prepare(self, workspace: Path) -> str:
            if files is not None:
                left_out = tree.copy(files, workspace)
                if left_out:
                    raise InvalidInput(f"{files} cannot be copied whole: {dict(left_out)}")
            payload: dict[str, Any] = {"task_id": self.task.task_id, "seed": self.task.seed, **self.task.payload}
            return fill(settings.prompt, {name: str(value) for name, value in payload.items()})

        async def evaluate(self, workspace: Path, ended: Exit) -> Score:
            if not settings.check:
                found = await self.tests(hidden)
                return Score(outcome=float(found.all_passed), evidence=said_of(found))
            done = await self.check(settings.check, hidden)
            is_success = done.how == "exited" and done.code == 0
            return Score(
                outcome=float(is_success),
                evidence={"check": done.how, "code": done.code, "said": done.tail[-CHECK_CHARS:]},
            )

        def make_sandbox(self) -> Sandbox:
            if settings.podman is None:
                return Subprocess(settings.user)
            return Podman(**msgspec.structs.asdict(settings.podman))

    return Described

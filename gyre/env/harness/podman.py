"""A harness in a container of its own, by podman: the same bounds and the same ends as a subprocess's, and walls around it.

    start() ─▶ podman run, below the warden ─▶ hook.py: command and variables in, listeners out ─▶ the command
                                                                             └─ door.py ◀─ its calls to 127.0.0.1

| what | how it is kept in |
|---|---|
| files | the image, read only; `home` and `work` at the same paths as here; `/tmp`, `/var/tmp`, `/run` in memory; what `mounts` names, read only |
| network | none of ours: a loopback of its own, on which only the ports of its relay (and tool gateway) are there |
| rights | another user, no capabilities, none to be won, podman's seccomp profile; processes, network, names and IPC of its own |
| bounds | memory and threads by the kernel, beside the warden's measurements |
| secrets | command and variables go by a file that only we can read: not by podman's command line, nor into what it remembers of the container |

It is removed when it has ended, by the warden where we were killed, and by the next of us where the warden was killed, too.
"""

import asyncio
import contextlib
import functools
import json
import logging
import os
import re
import resource
import secrets
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from gyre.env.harness.door import Door, ports_of
from gyre.env.harness.sandbox import Bounds, Exit, NotStarted, Running, Subprocess, Warded
from gyre.env.harness.warden import processes
from gyre.env.harness.warden.asking import asked, removed
from gyre.errors import GyreError
from gyre.tasks import whole

log = logging.getLogger(__name__)

HOOK, JUDGE = (Path(__file__).with_name(name) for name in ("hook.py", "judge"))
STAGES = ("precreate", "createRuntime")
NOBODY = 65534
NAME, OWNER = "gyre-harness-", "gyre.owner"
"""Of containers, and of the label that says whose they are."""
SPARE_S = 120.0
"""On top of a command's grace, until its container must be gone."""
FILES_MAX = 1_048_576
"""To which podman lowers its own bound of open files."""
HINTS = (
    ("image not known", "pull, build or import it before the run (`podman pull`, `podman import`): none is pulled when an execution starts"),
    ("configuration mismatch", "podman's store was made with other options: say the same ones"),
    (r"overlay(fs)?\W.*(not supported|invalid|not permitted)|mount_program",
     "where overlay cannot be mounted, podman's storage needs `--storage-driver vfs`, or `driver = \"vfs\"` in storage.conf"),
    (r"GetDriver|driver not supported", "podman's storage is said with `--root`, `--runroot`, `--storage-driver`, or in storage.conf"),
    ("cgroup", "bounds need control groups: `--cgroup-manager cgroupfs` where there is no systemd, `--runtime runc` where both versions are mounted"),
    ("invalid internal status", "`podman system migrate`"),
    ("catatonit", "podman's `--init` needs catatonit: install it"),
)  # fmt: skip
"""Patterns of podman's words, where the remedy is known."""


class Image(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a container is made of."""

    image: str
    """As podman knows it, which never pulls one here."""
    podman: tuple[str, ...] = ("podman",)
    """The program, with options of its own where the machine needs some."""
    user: int = NOBODY
    """Id, here and there, under which the command runs."""
    mounts: dict[str, str] = {}
    """Folders or files here → paths there, read only."""
    python: str = "python3"
    """The interpreter in the image, for hidden tests and `{python}`; at least 3.11 for tests."""
    is_root_writable: bool = False
    """For a harness that writes beside its home and working folder. What it writes there is in no bound but that of a single file."""


class Podman(Subprocess):
    """Folders as Subprocess has them, mounted into a container for each command. Needs root's rights, podman 4.3 or later, and its `--init`."""

    def __init__(self, image: str, *, folder: Path | None = None, **what: object) -> None:
        """`what`: further fields of Image. Raises NotStarted, which says what is missing."""
        self._image = msgspec.convert({"image": image, **what}, Image)
        if os.geteuid() != 0:
            raise NotStarted("a container's bounds need root's rights; as another user use Subprocess")
        self._podman = self._image.podman
        self._id = self._asked("image", "inspect", "--format", "{{.Id}}", image)
        _sweep(self._podman)
        self._starts = 0
        super().__init__(self._image.user, folder)

    @property
    def python(self) -> str:
        return self._image.python

    @property
    def path(self) -> str:
        return ""

    def found(self, program: str, path: str) -> str:
        """The hook looks for it, in the image."""
        return program

    def identity(self, program: str, path: str) -> tuple[str, str]:
        return f"{self._id} {program}", self._image.image

    async def start(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        bounds: Bounds,
        grace_s: float = 5.0,
        reached: Sequence[str] = (),
    ) -> Running:
        ports = ports_of(reached)
        self._starts += 1
        folder, name = self._root / f"start-{self._starts}", NAME + secrets.token_hex(8)
        door = Door(folder / "door", ports) if ports else None
        try:
            _write(folder, {"command": list(command), "environment": dict(environment), "ports": ports})
            if door is not None:
                await door.open()
        except OSError as error:
            raise NotStarted(f"{folder}: {error}") from error
        hooked = [*self._podman, "--hooks-dir", str(folder / "hooks")]
        container = {
            "pid": str(folder / "pid"), "wait": [*self._podman, "wait", name], "remove": removal(self._podman, name)
        }  # fmt: skip
        variables = _podmans(os.environ)
        remove = functools.partial(removed, container["remove"], variables)
        run = [*hooked, "run", *self._options(name, bounds), self._id, "harness"]
        try:
            running = await self._watched(run, variables, bounds, grace_s, container, remove)
        except BaseException:
            if door is not None:
                await whole(door.close())
            raise
        running.spare_s = SPARE_S
        return _Contained(running, door)

    def _options(self, name: str, bounds: Bounds) -> list[str]:
        limits = {
            "core": 0, "fsize": _at_most(resource.RLIMIT_FSIZE, bounds.disk_bytes),
            "nofile": _at_most(resource.RLIMIT_NOFILE, FILES_MAX), "nproc": _at_most(resource.RLIMIT_NPROC, _pids_max()),
        }  # fmt: skip
        shown = {str(self.home): f"{self.home}:rw", str(self.work): f"{self.work}:rw", str(JUDGE): f"{JUDGE}:ro"}
        shown |= {here: f"{there}:ro" for here, there in self._image.mounts.items()}
        return [
            "--detach", "--name", name, "--label", f"{OWNER}={owner()}", "--log-driver", "passthrough", "--pull", "never", "--init",
            "--network", "none", "--ipc", "private", "--cgroupns", "private", "--http-proxy=false", "--no-healthcheck",
            "--cap-drop", "all", "--security-opt", "no-new-privileges", "--user", f"{self._image.user}:{self._image.user}",
            "--image-volume", "ignore", *(() if self._image.is_root_writable else ("--read-only",)), "--workdir", str(self.work),
            "--memory", f"{bounds.memory_bytes}b", "--memory-swap", f"{bounds.memory_bytes}b",
            "--pids-limit", str(bounds.processes * processes.THREADS_PER_PROCESS),
            *(word for name, most in limits.items() for word in ("--ulimit", f"{name}={most}:{most}")),
            *(word for here, there in shown.items() for word in ("--volume", f"{here}:{there}")),
        ]  # fmt: skip

    def _asked(self, *words: str) -> str:
        """What podman says. Raises NotStarted with what is missing."""
        variables = _podmans(os.environ)
        if shutil.which(self._podman[0], path=variables.get("PATH", os.defpath)) is None:
            raise NotStarted(f"there is no `{self._podman[0]}`: install podman and runc, or use Subprocess")
        code, said, complaint = asked([*self._podman, *words], variables)
        if code:
            raise NotStarted(f"podman: {explained(complaint)}")
        return said.strip()


class _Contained(Running):
    """A warden's, and the door beside it."""

    def __init__(self, running: Warded, door: Door | None) -> None:
        self._running = running
        self._ended = asyncio.ensure_future(self._end(door))
        self._ended.add_done_callback(lambda done: done.cancelled() or done.exception())

    @property
    def usage(self) -> dict[str, float]:
        return self._running.usage

    async def wait(self) -> Exit:
        return await asyncio.shield(self._ended)

    async def stop(self) -> Exit:
        with contextlib.suppress(GyreError):
            await self._running.stop()
        return await self.wait()

    async def _end(self, door: Door | None) -> Exit:
        try:
            return await self._running.wait()
        except NotStarted as error:
            raise NotStarted(f"podman: {explained(str(error))}") from error
        finally:
            if door is not None:
                await door.close()


def removal(podman: Sequence[str], name: str) -> list[str]:
    """The command that removes a container, whatever state it is in."""
    return [*podman, "rm", "--force", "--ignore", "--volumes", "--time", "0", name]


def explained(words: str) -> str:
    """A hook's words, where it said why; else podman's own, and what is to be done where that is known."""
    own = words.partition("stderr: ")[2]
    if own := own.partition("\n")[0].strip():
        return own
    said = words.rpartition("Error: ")[2].strip()
    hint = next((hint for mark, hint in HINTS if re.search(mark, said)), "")
    return f"{said}; {hint}" if hint else said


@functools.lru_cache(maxsize=16)
def _sweep(podman: tuple[str, ...]) -> None:
    """Remove what those of us left who are gone, their wardens with them. Once a process."""
    variables = _podmans(os.environ)
    listing = [*podman, "ps", "--all", "--filter", f"label={OWNER}", "--format", "json"]
    try:
        for one in json.loads(asked(listing, variables)[1] or "[]") or []:
            name = one["Names"][0]
            if name.startswith(NAME) and is_gone(one["Labels"][OWNER]):
                log.warning("container %s was left by a process that is gone; it is removed", name)
                removed(removal(podman, name), variables)
    except (OSError, ValueError, LookupError, TypeError) as error:
        log.warning("containers of processes that are gone: not looked at (%s)", error)


def owner(pid: int | None = None) -> str:
    """This process, told from all others of this machine: boot/process namespace/number/start. Raises OSError for one that is gone."""
    namespace = os.stat("/proc/self/ns/pid").st_ino
    fields = Path(f"/proc/{pid or os.getpid()}/stat").read_text().rpartition(")")[2].split()
    if fields[0] == "Z":
        raise ProcessLookupError(pid)
    return (
        f"{Path('/proc/sys/kernel/random/boot_id').read_text().strip()}/{namespace}/{pid or os.getpid()}/{fields[19]}"
    )


def is_gone(said: str) -> bool:
    """Whether the process that `owner` told of has ended. Nothing is known of those in other namespaces."""
    boot, namespace, number, _start = said.split("/")
    ours = owner().split("/")
    if boot != ours[0]:
        return True
    if namespace != ours[1]:
        return False
    with contextlib.suppress(OSError):
        return owner(int(number)) != said
    return True


def _write(folder: Path, start: dict) -> None:
    """What the hook reads."""
    folder.mkdir(mode=0o700)
    (folder / "start.json").touch(mode=0o600)
    (folder / "start.json").write_text(json.dumps(start))
    (folder / "hooks").mkdir()
    for stage in STAGES:
        arguments = [sys.executable, "-I", "-S", str(HOOK), stage, str(folder)]
        hook = {"version": "1.0.0", "hook": {"path": sys.executable, "args": arguments}, "when": {"always": True}}
        (folder / "hooks" / f"{stage}.json").write_text(json.dumps(hook | {"stages": [stage]}))


def _podmans(variables: Mapping[str, str]) -> dict[str, str]:
    """Those that podman goes by; no others of this process's."""
    own = ("PATH", "HOME", "TMPDIR", "XDG_", "CONTAINER", "STORAGE_", "REGISTRY_AUTH_FILE", "DBUS_")
    return {name: value for name, value in variables.items() if name.startswith(own)}


def _at_most(kind: int, most: int) -> int:
    """No bound is above this process's own."""
    hard = resource.getrlimit(kind)[1]
    return most if hard == resource.RLIM_INFINITY else min(most, hard)


def _pids_max() -> int:
    """Podman lowers its own bound of processes to this."""
    return int(Path("/proc/sys/kernel/pid_max").read_text())

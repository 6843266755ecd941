"""Where a command of somebody else runs: `Sandbox.start(...)` → `Running` → `Exit`.

| sandbox | what keeps it in |
|---|---|
| Subprocess | variables, a home and a working folder of its own; bounds of use; nothing of it left running (warden/); another user, on request |
| Podman (podman.py) | the same bounds; an image of its own that it cannot write, no privileges, no network but for the ports that it is given |

The first is no prison: what the user may read, the command may read, and the network is open to it. What is to run elsewhere (a Kubernetes Job) is
another `Sandbox`; none is shipped.
"""

import asyncio
import contextlib
import fcntl
import functools
import json
import os
import sys
import tempfile
import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from gyre.env.harness.programs import found, version_of
from gyre.env.harness.warden import processes, walk
from gyre.errors import Conflict, GyreError
from gyre.tasks import whole

WARDEN = Path(__file__).with_name("warden")
LINE_BYTES_MAX = 1024 * 1024
WARDEN_GRACE_S = 10.0
"""On top of a command's own grace, for a busy machine; then the warden itself is killed, and all that it started."""
NAME = "gyre-harness-"
"""How names of folders around sandboxes begin."""
NEW_S = 600.0
"""A folder that was just made is not yet held by who made it."""
PLACE_S, PLACE_POLL_S = 60.0, 0.25
"""A sandbox whose process was lost ends within its command's grace, a busy machine's within more."""


class Bounds(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a command and all that it starts may use together. What exceeds one is killed, at the end of `wall_s` after a grace; its name is why."""

    wall_s: float = 1e9
    """Beside the execution's own wall clock, which stands still while it is suspended."""
    cpu_s: float = 3600.0
    memory_bytes: int = 8 * 2**30
    """Sum of what is resident; pages that processes share count for each of them."""
    processes: int = 512
    """Counted each second. Where it has another user, the kernel keeps all that this user runs, other executions included, to 512 threads for each of
    them (and to the hard limit of the environment process): those that must not starve each other for that second need a user each."""
    output_bytes: int = 64 * 2**20
    """Of standard output and error together; the last 64 KiB are kept."""
    disk_bytes: int = 4 * 2**30
    """In its home and working folder together, measured while it runs, each entry as 4 KiB at least; also of one file."""


class Exit(msgspec.Struct, frozen=True, kw_only=True):
    """How a command ended."""

    how: str
    """exited; stopped (by us); wall, cpu, memory, processes, output, disk: the bound it exceeded; lost: its warden was killed, and it after that."""
    code: int = 0
    """Exit code; negative: the signal that ended it."""
    tail: str = ""
    """The end of what it said, at most 64 KiB."""
    wall_s: float = 0.0
    cpu_s: float = 0.0
    memory_bytes_max: int = 0
    disk_bytes: int = 0
    left: int = 0
    """Processes that could not be killed; 0 but for a broken kernel."""


class NotStarted(GyreError):
    """The command does not exist or may not be carried out."""

    code = "not_started"


class Running(ABC):
    """A command under way."""

    usage: dict[str, float]
    """The newest measurement: cpu_s, memory_bytes, output_bytes, disk_bytes, processes; empty before the first."""

    @abstractmethod
    async def wait(self) -> Exit:
        """When it and all that it started have ended. May be cancelled and called again. Raises NotStarted."""

    @abstractmethod
    async def stop(self) -> Exit:
        """Ask it to end, after `grace_s` kill it and all that it started. Raises NotStarted."""


class Sandbox(ABC):
    """One execution's: its folders live as long as it does."""

    home: Path
    work: Path
    tree: Path | None = None
    """The folder with `home`, `work` and nothing else, in one that is ours, where snapshots of it can be taken and restored from here."""

    @property
    def place(self) -> str:
        """What `move` takes."""
        return ""

    def move(self, place: str) -> None:
        """Before anything is in it: be where another sandbox was, whose command knows the paths of then. Blocks until that one has ended. Raises
        Conflict where it does not."""
        raise Conflict(f"a {type(self).__name__} cannot be moved")

    @property
    def python(self) -> str:
        """The interpreter in which hidden tests run there."""
        return sys.executable

    @property
    def path(self) -> str:
        """Folders where programs are looked for there, where nobody says others; empty: what it has itself is not to be replaced."""
        return os.environ.get("PATH", os.defpath)

    def found(self, program: str, path: str) -> str:
        """What to start for `program`. Raises InvalidInput where it is known that there is none."""
        return found(program, path)

    def identity(self, program: str, path: str) -> tuple[str, str]:
        """(what says which program it is, its version), of an answer of `found`."""
        return os.path.realpath(program), version_of(program, path)

    @abstractmethod
    async def start(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        bounds: Bounds,
        grace_s: float = 5.0,
        reached: Sequence[str] = (),
    ) -> Running:
        """Start `command` in the folder `work` with `environment` and no other variables of ours. `reached`: URLs of this machine that it must get
        through to, where it gets through to no others. Raises NotStarted, or `wait` does."""

    @abstractmethod
    def close(self) -> None:
        """Remove its folders."""

    async def run(self, command: Sequence[str], environment: Mapping[str, str], bounds: Bounds) -> Exit:
        """To its end; what is cancelled is ended. Raises NotStarted."""
        running = await self.start(command, environment, bounds)
        try:
            return await running.wait()
        finally:
            await whole(running.stop())


class Subprocess(Sandbox):
    """Folders `home` and `work` in a temporary one, the command below a warden.

    Whose folder it is says a lock on the one around them, held by this process and the warden, so that a place is free when both have gone."""

    def __init__(self, user: int | None = None, folder: Path | None = None) -> None:
        """`user`: id under which the command runs; needs root's rights. `folder`: where temporary folders go."""
        self._user = user
        _sweep(Path(folder or tempfile.gettempdir()))
        self._furnish(Path(tempfile.mkdtemp(prefix=NAME, dir=folder)))

    def _furnish(self, root: Path) -> None:
        """`root` is there, and empty."""
        self._root, self.tree = root, root / "tree"
        self.home, self.work = self.tree / "home", self.tree / "work"
        self._lock = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._remove = weakref.finalize(self, _give_up, root, self._lock)
        fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        for path in (self.tree, self.home, self.work):
            path.mkdir(mode=0o755)
        if self._user is not None:
            root.chmod(0o711)

    @property
    def place(self) -> str:
        return str(self._root)

    def move(self, place: str) -> None:
        until_s = time.monotonic() + PLACE_S
        while not _has_made_room(root := Path(place)):
            if time.monotonic() > until_s:
                raise Conflict(f"{place} is another sandbox's, which has not ended")
            time.sleep(PLACE_POLL_S)
        self._remove()
        self._furnish(root)

    async def start(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        bounds: Bounds,
        grace_s: float = 5.0,
        reached: Sequence[str] = (),
    ) -> Running:
        return await self._watched(command, environment, bounds, grace_s)

    async def _watched(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        bounds: Bounds,
        grace_s: float,
        container: dict[str, Any] | None = None,
        end_first: Callable[[], object] = lambda: None,
    ) -> "Warded":
        """Below a warden. `container`: see warden/contained.py. `end_first`: what is done before the rest is killed, where the warden was."""
        if self._user is not None:
            await asyncio.to_thread(self._give_away)
        spec = {
            "command": list(command), "directory": str(self.work), "environment": dict(environment), "grace_s": grace_s,
            "bounds": msgspec.to_builtins(bounds), "folders": [str(self.home), str(self.work)], "user": self._user,
            "root": str(self._root), "mark": (mark := processes.new_mark()), "container": container,
        }  # fmt: skip
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-I", "-S", str(WARDEN), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
            env={"PATH": os.defpath}, start_new_session=True, limit=LINE_BYTES_MAX, pass_fds=[self._lock],
        )  # fmt: skip
        process.stdin.write(json.dumps(spec).encode() + b"\n")
        return Warded(process, grace_s, mark, end_first)

    def close(self) -> None:
        self._remove()

    def _give_away(self) -> None:
        """The tree belongs to the command's user."""
        for root in (self.home, self.work):
            for folder, folders, files in os.walk(root):
                for name in (".", *folders, *files):
                    os.chown(os.path.join(folder, name), self._user, self._user, follow_symlinks=False)


class Warded(Running):
    """Below a warden."""

    spare_s = WARDEN_GRACE_S

    def __init__(
        self, process: asyncio.subprocess.Process, grace_s: float, mark: int, end_first: Callable[[], object]
    ) -> None:
        self._process, self._grace_s, self._mark, self._end_first = process, grace_s, mark, end_first
        self.usage = {}
        self._reading = asyncio.ensure_future(self._read())
        self._reading.add_done_callback(lambda done: done.cancelled() or done.exception())

    async def wait(self) -> Exit:
        return _exit_of(await asyncio.shield(self._reading))

    async def stop(self) -> Exit:
        with contextlib.suppress(OSError, RuntimeError):
            self._process.stdin.write(b"stop\n")
        try:
            async with asyncio.timeout(self._grace_s + self.spare_s):
                return _exit_of(await asyncio.shield(self._reading))
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            return _exit_of(await self._reading)

    async def _read(self) -> dict[str, Any]:
        last: dict[str, Any] = {}
        while line := await self._process.stdout.readline():
            last = json.loads(line)
            if "how" not in last:
                self.usage = last
        await self._process.wait()
        self._process.stdin.close()
        if "how" in last:
            return last
        await asyncio.to_thread(self._end_first)
        return {"how": "lost", "code": -9, "left": await asyncio.to_thread(processes.end_marked, self._mark)}


def _has_made_room(root: Path) -> bool:
    """An empty folder is there, made by us: what was there is gone with those who used it, or was left by such as were lost."""
    try:
        os.mkdir(root, mode=0o700)
        return True
    except FileExistsError:
        pass
    _remove_unheld(root)
    return False


@functools.lru_cache(maxsize=16)
def _sweep(folder: Path) -> None:
    """Remove sandboxes of those of us who were killed while no warden of theirs ran. Once a process."""
    for root in folder.glob(f"{NAME}*"):
        with contextlib.suppress(OSError):
            status = (root / "tree").lstat()
            if status.st_uid == os.geteuid() and time.time() - status.st_ctime > NEW_S:
                _remove_unheld(root)


def _remove_unheld(root: Path) -> None:
    with contextlib.suppress(OSError):
        lock = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            walk.remove(root)
        finally:
            os.close(lock)


def _give_up(root: Path, lock: int) -> None:
    walk.remove(root)
    os.close(lock)


def _exit_of(said: dict[str, Any]) -> Exit:
    if said["how"] == "not_started":
        raise NotStarted(said["detail"])
    return msgspec.convert(said, Exit)

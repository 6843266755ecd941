"""One child process in a process group of its own, its output in a log file; it dies with us, however we die."""

import asyncio
import contextlib
import ctypes
import os
import signal
from pathlib import Path

from gyre.errors import EXIT_USER_ERROR, GyreError
from gyre.supervisor.plan import Process

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)
TAIL_BYTES = 8192


class ProcessFailed(GyreError):
    """A process of the run ended and will not be started again."""

    code = "process_failed"

    def __init__(self, message: str, is_user_error: bool = False) -> None:
        super().__init__(message)
        self.is_user_error = is_user_error
        """The process said that something has to be corrected (exit code 2), not that it broke."""


def die_with_parent() -> None:
    """Between fork and exec: SIGKILL this process when its parent is gone, also after `kill -9` of the parent."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


class Child:
    """Start it, wait for its death, stop it."""

    def __init__(self, process: Process, log: Path) -> None:
        self.spec = process
        self.log = log
        self.process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Raises ProcessFailed when there is no such command."""
        if self.spec.attached_file:
            await asyncio.to_thread(Path(self.spec.attached_file).unlink, missing_ok=True)
        with self.log.open("ab") as log:
            try:
                self.process = await asyncio.create_subprocess_exec(
                    *self.spec.command, stdin=asyncio.subprocess.DEVNULL, stdout=log, stderr=log,
                    env=os.environ | self.spec.variables, start_new_session=True, preexec_fn=die_with_parent,
                )  # fmt: skip
            except OSError as error:
                raise ProcessFailed(f"{self.spec.name} cannot be started: {error}", is_user_error=True) from error

    @property
    def was_attached(self) -> bool:
        """This process of an environment has worked since its last start."""
        return bool(self.spec.attached_file) and Path(self.spec.attached_file).exists()

    async def wait(self) -> int:
        """Its exit code; negative for the signal that ended it."""
        assert self.process is not None
        return await self.process.wait()

    async def stop(self) -> None:
        """SIGTERM to its group, SIGKILL when the grace is over, and to whatever it leaves behind."""
        if self.process is None:
            return
        if self.process.returncode is None:
            self._signal(signal.SIGTERM)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self.spec.grace_s):
                    await self.process.wait()
        self._signal(signal.SIGKILL)
        await self.process.wait()

    def failed(self, code: int, why: str = "") -> ProcessFailed:
        """The error to raise for its end, with the last thing it said."""
        how = f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
        return ProcessFailed(
            f"{self.spec.name} {how}{why}: {last_words(self.log)} (log: {self.log})", code == EXIT_USER_ERROR
        )

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, number)


def last_words(log: Path, otherwise: str = "it said nothing") -> str:
    """The last line with text in it: services print their error there. A progress bar's older states do not count."""
    try:
        with log.open("rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - TAIL_BYTES))
            lines = file.read().decode(errors="replace").strip().splitlines()
    except OSError:
        lines = []
    return lines[-1][:1000] if lines else otherwise

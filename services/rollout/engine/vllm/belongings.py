"""What vLLM's processes have outside of themselves: a folder of temporary files, and named shared memory that bears the folder's name.

Whoever made them removes them in the end. After `kill -9` of that cell they stay, and the next one removes them: the owner holds a lock on
its folder for as long as it lives, and the kernel lets go of it, however the owner died. So nobody's are removed who still lives.
"""

import contextlib
import fcntl
import logging
import os
import shutil
import stat
import tempfile
from pathlib import Path

log = logging.getLogger(__name__)

PREFIX = "gyre-vllm-"
SHARED = Path("/dev/shm")
VARIABLE = "GYRE_VLLM_SHARED"
"""Tells vLLM's processes how the names of their shared memory begin; plugin/gyre_vllm/plugin.py reads it."""


class Belongings:
    """Those of one living owner."""

    def __init__(self) -> None:
        # Under another name until it is locked: nobody ever sees an unlocked folder of a living owner.
        made = Path(tempfile.mkdtemp(prefix="gyre-new-"))  # mode 0700; short, for sockets' names are at most 107 bytes
        self._lock = os.open(made, os.O_RDONLY | os.O_DIRECTORY)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        self.folder = made.rename(made.with_name(PREFIX + made.name.removeprefix("gyre-new-")))

    @property
    def variables(self) -> dict[str, str]:
        return {"TMPDIR": str(self.folder), VARIABLE: self.folder.name}

    def segments(self) -> list[Path]:
        """The shared memory that is there."""
        return _segments(self.folder.name)

    def clear(self) -> None:
        """Remove the shared memory; the processes have ended."""
        for path in self.segments():
            path.unlink(missing_ok=True)

    def remove(self) -> None:
        """All of it, once."""
        self.clear()
        shutil.rmtree(self.folder, ignore_errors=True)
        os.close(self._lock)


def _segments(name: str) -> list[Path]:
    """Memory, and semaphores as the C library calls their files."""
    return [*SHARED.glob(f"{name}-*"), *SHARED.glob(f"sem.{name}-*")]


def remove_orphaned() -> list[Path]:
    """Remove what this user's dead cells have left; the folders that are gone now."""
    found = []
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):  # somebody else's, one that lives, or gone meanwhile
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                if os.fstat(lock).st_uid != os.getuid() or stat.S_IMODE(os.fstat(lock).st_mode) & 0o077:
                    continue
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                for path in _segments(folder.name):
                    path.unlink(missing_ok=True)
                shutil.rmtree(folder)
                found.append(folder)
            finally:
                os.close(lock)
    if found:
        log.info("removed what %d killed cells had left: %s", len(found), ", ".join(map(str, found)))
    return found

"""Logs that stay small: a process that prints without end fills no disk.

Processes write to their log by a descriptor opened to append, so the file is emptied under them and they go on at its beginning; the end of what
was there stands beside it.
"""

import asyncio
import logging
from pathlib import Path

log = logging.getLogger(__name__)

LOG_BYTES_MAX = 256 * 2**20
"""Hundreds of hours of what services say; half a minute of a process that prints as fast as it can."""
KEPT_BYTES = 4 * 2**20
LOOK_S = 2.0


async def keep_small(folder: Path, bytes_max: int = LOG_BYTES_MAX, look_s: float = LOOK_S) -> None:
    """For ever: every `*.log` of the folder."""
    while True:
        await asyncio.sleep(look_s)
        await asyncio.to_thread(shorten_all, folder, bytes_max)


def shorten_all(folder: Path, bytes_max: int) -> None:
    for path in folder.glob("*.log"):
        try:
            if path.stat().st_size > bytes_max:
                shorten(path)
        except OSError as error:  # it is looked at again
            log.warning("%s cannot be made smaller: %s", path, error)


def shorten(path: Path) -> None:
    """Empties it but for a line that says so; the last KEPT_BYTES go to `NAME.log.cut`. What is written meanwhile may be lost."""
    with path.open("r+b") as file:
        size = file.seek(0, 2)
        file.seek(max(0, size - KEPT_BYTES))
        aside = path.with_suffix(".log.cut")
        aside.write_bytes(file.read(KEPT_BYTES))
        file.truncate(0)
    with path.open("ab") as file:
        file.write(f"[{size} bytes of log were cut; the last {KEPT_BYTES} stand in {aside.name}]\n".encode())

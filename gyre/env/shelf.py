"""What a process's executions share of what is kept of them: a folder, the store of snapshots in it, records, and measurements."""

import asyncio
import contextlib
import logging
import tempfile
import threading
import time
from collections import defaultdict
from pathlib import Path

from gyre.env.forking import TRAIL, Start
from gyre.env.keeping import REDACTOR, Keeper
from gyre.env.recording import RecordDamaged, Redactor, Tape
from gyre.env.recording.tape import drop
from gyre.env.snapshots import Series, Store
from gyre.env.snapshots.spacing import Spacing
from gyre.env.trail import Trail
from gyre.errors import Conflict, InvalidInput

log = logging.getLogger(__name__)

COLLECT_EVERY = 32
"""Attempts between two collections: what a few attempts left behind is no load for a disk, and a collection looks at every file of the store."""
REFERENCE_AGE_MAX_S = 7 * 86_400.0
"""Of an execution that ended without its process saying so."""
COLLECT_BYTES = 2 * 2**30
"""Written since the last collection: executions that last for hours leave many snapshots behind before they end."""
TAPE_S, TRAIL_S, TAPE_POLL_S = 15.0, 90.0, 0.25
"""An older attempt in this process that was cancelled has up to ten seconds to close its world, and before that an agent that asks by itself has its
grace to end in, and its snapshot to be taken."""


class Shelf:
    """What a process's executions share: the store of their snapshots, and what they measured, by task type."""

    def __init__(self, root: Path | None = None, redactor: Redactor | None = None) -> None:
        """`root` holds snapshots, and records where there is a `redactor` for them, for the next attempts of any process. Without it snapshots live
        in a temporary folder, as long as the process."""
        if redactor is not None and root is None:
            raise InvalidInput("to record tool calls a folder is needed: give `state`, or set GYRE_ENVIRONMENT_STATE")
        self._root, self.redactor = root, redactor
        if root is not None:
            try:
                root.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise InvalidInput(f"state cannot be kept in {root}: {error.strerror}") from error
        self._temporary: tempfile.TemporaryDirectory | None = None
        self._store: Store | None = None
        self._lock, self._collecting = threading.Lock(), threading.Lock()
        self._released = self._written = 0
        """`_written`: by the store until the last collection."""
        self._spacings: defaultdict[str, Spacing] = defaultdict(Spacing)

    @property
    def records(self) -> bool:
        """Turns and tool calls go on record."""
        return self.redactor is not None

    def keeper(self, execution: str, attempt: int, task_type: str) -> Keeper:
        return Keeper(self, execution, attempt, self._spacings[task_type])

    async def tape(self, execution: str) -> Tape | None:
        """None where nothing is recorded, and where an older attempt's process does not let go of it."""
        return None if self.redactor is None else await self._opened(f"{execution}.tape", TAPE_S)

    async def trail(self, execution: str, name: str, spacing: Spacing) -> Trail | None:
        """None where there is no folder for it, and as `tape`."""
        if self._root is None or (tape := await self._opened(execution + TRAIL, TRAIL_S)) is None:
            return None
        series = Series(await asyncio.to_thread(self.store), execution + TRAIL)
        return Trail(name, tape, series, spacing, self._wrote)

    async def _opened(self, name: str, wait_s: float) -> Tape | None:
        path, until_s = self._root / "records" / name, time.monotonic() + wait_s
        while True:
            try:
                return await asyncio.to_thread(Tape, path, self.redactor or REDACTOR)
            except RecordDamaged as error:
                log.warning("%s; it is set aside", error)
                path.replace(path.with_suffix(".damaged"))
            except Conflict as error:
                if time.monotonic() > until_s:
                    log.warning("nothing is recorded: %s", error)
                    return None
                await asyncio.sleep(TAPE_POLL_S)

    def store(self) -> Store:
        """Made when the first snapshot is taken: most environments take none."""
        with self._lock:  # first snapshots are taken in several threads at once
            if self._store is not None:
                return self._store
            if self._root is None:
                self._temporary = tempfile.TemporaryDirectory(prefix="gyre-snapshots-")
            self._store = Store(Path(self._temporary.name) if self._root is None else self._root / "snapshots")
            return self._store

    def restore(self, start: Start, into: Path) -> None:
        """Another execution's tree, for one that begins there. Blocks. Raises InvalidInput, and as Store.restore."""
        if self._root is None:
            raise InvalidInput(
                "to begin from a snapshot a folder is needed: give `state`, or set GYRE_ENVIRONMENT_STATE"
            )
        store = self.store()
        store.keep(start.snapshot)  # anew, for as long as executions begin there
        store.restore(start.snapshot, into, start.folder)

    def release(self, series: Series) -> None:
        """Nobody goes back to these any more; now and then what is left over is removed. Blocks."""
        series.release()
        self._released += 1
        if self._released % COLLECT_EVERY == 0:
            self._collect()

    def _wrote(self) -> None:
        """A snapshot was taken, or came to nothing. Blocks."""
        if self.store().written - self._written > COLLECT_BYTES:
            self._collect()

    def _collect(self) -> None:
        if self._collecting.acquire(blocking=False):
            try:  # it waits for whoever takes a snapshot; a second one would only wait beside it
                self._written = self.store().written
                self.store().collect(REFERENCE_AGE_MAX_S)
                self._drop_trails()
            finally:
                self._collecting.release()

    def _drop_trails(self) -> None:
        """Of executions whose snapshots are too old by now: nothing goes on from them."""
        for path in (self._root / "records").glob(f"*{TRAIL}") if self._root is not None else ():
            drop(path, REFERENCE_AGE_MAX_S)

    def close(self) -> None:
        if self._temporary is not None:
            with contextlib.suppress(OSError):
                self._temporary.cleanup()
            self._temporary = self._store = None

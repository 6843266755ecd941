"""What an execution keeps of its world and of its messages, so that it can go back (C4).

    after a turn, when it is due ──▶ Checkpoint(ordinal, turn, messages, digest of the workspace, state)
    Rollback ──▶ the workspace as it was, restore(state), the messages of then ──▶ the model is asked again

The gateway answers the calls that it has on record from its record, so going back to a world that now holds repeats the lost turns as they were,
and nothing is sampled twice. What breaks at the same place again is not helped by going back, and fails the execution.
"""

import asyncio
import contextlib
import hashlib
import json
import logging
import tempfile
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec

from gyre.env.environment import Environment, Rollback
from gyre.env.snapshots import Series, Store
from gyre.env.snapshots.spacing import Spacing
from gyre.env.worker import Hung
from gyre.errors import InvalidInput

log = logging.getLogger(__name__)

STATE_BYTES_MAX = 64 * 2**20
"""What `Environment.snapshot` may hold; files belong into the workspace."""
ROLLBACKS_MAX = 3
"""To the same snapshot; a fourth would end as the third did."""
ROLLBACKS_TOTAL_MAX = 20
COLLECT_EVERY = 32
"""Attempts between two collections: what a few attempts left behind is no load for a disk, and a collection looks at every file of the store."""
REFERENCE_AGE_MAX_S = 7 * 86_400.0
"""Of an execution that ended without its process saying so."""

Call = Callable[..., Awaitable[Any]]
"""Runs a method in the environment's own thread, inside the wall clock."""


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True):
    """A moment of an execution to which it can go back."""

    ordinal: int
    turn: int
    """Model calls before it."""
    messages: bytes
    """JSON, as they stood."""
    digest: str = ""
    """Of the workspace's snapshot; empty where there is no workspace."""
    state: bytes = b""


class Turns:
    """Numbers an execution's model calls as the gateway does: from 1, and equal conversations are the same call (also after a rollback)."""

    def __init__(self) -> None:
        self._numbers: dict[bytes, int] = {}

    def of(self, messages: list[dict[str, Any]]) -> int:
        """Of the call that asks with these messages. Raises TypeError for what is not JSON."""
        return self._numbers.setdefault(hashlib.sha256(json.dumps(messages).encode()).digest(), len(self._numbers) + 1)


class Keeper:
    """One attempt's checkpoints."""

    def __init__(self, shelf: "Shelf", name: str, spacing: Spacing) -> None:
        self._shelf, self._name, self._spacing = shelf, name, spacing
        self._environment: Environment
        self._series: Series | None = None
        self._newest: Checkpoint | None = None
        self._turn_began_s = 0.0
        self._rollbacks = self._rollbacks_here = 0
        self.ordinal = 0
        self.rollback_turns = 0

    async def begin(self, environment: Environment, messages: list[dict[str, Any]], call: Call) -> None:
        """The world is up: its first checkpoint. Raises InvalidInput for a workspace that is no path, and Hung."""
        self._environment = environment
        if not isinstance(environment.workspace, str | Path | None):
            raise InvalidInput(f"workspace must be a path, not {type(environment.workspace).__name__}")
        if environment.workspace is not None or type(environment).snapshot is not Environment.snapshot:
            await self._take(0, messages, call)
        self._turn_began_s = time.monotonic()

    async def after(self, turn: int, messages: list[dict[str, Any]], call: Call) -> None:
        """A turn went well; take a snapshot when it is due. One that cannot be taken is logged and harms nobody. Raises Hung."""
        if self.ordinal == 0:
            return
        now_s = time.monotonic()
        self._spacing.stepped(now_s - self._turn_began_s)
        if self._newest is None or self._spacing.is_due(turn - self._newest.turn):
            await self._take(turn, messages, call)
        self._turn_began_s = time.monotonic()

    async def go_back(self, error: Rollback, turn: int, call: Call) -> tuple[list[dict[str, Any]], int]:
        """(messages, turn) of the newest checkpoint, with the world as it was then. Raises `error` where there is none or it was no help, Hung, and
        whatever restoring raises."""
        newest = self._newest
        self._rollbacks, self._rollbacks_here = self._rollbacks + 1, self._rollbacks_here + 1
        if newest is None or self._rollbacks_here > ROLLBACKS_MAX or self._rollbacks > ROLLBACKS_TOTAL_MAX:
            raise error
        log.info(
            "%s goes back from turn %d to snapshot %d of turn %d: %s",
            self._name,
            turn,
            newest.ordinal,
            newest.turn,
            error,
        )
        self._spacing.failed()
        self.rollback_turns += turn - newest.turn
        await self._restore(newest, call)
        self._turn_began_s = time.monotonic()
        return json.loads(newest.messages), newest.turn

    async def close(self) -> None:
        """The attempt is over."""
        if self._series is not None:
            await asyncio.to_thread(self._shelf.release, self._series)

    async def _take(self, turn: int, messages: list[dict[str, Any]], call: Call) -> None:
        begun_s = time.monotonic()
        try:
            state = await call(self._environment.snapshot)
            if not isinstance(state, bytes) or len(state) > STATE_BYTES_MAX:
                raise InvalidInput(f"snapshot() must return at most {STATE_BYTES_MAX} bytes")
            digest = await call(self._take_files)
            if not digest:
                self.ordinal += 1
        except Hung:
            raise
        except Exception as error:
            log.warning("%s: no snapshot after turn %d: %s", self._name, turn, error)
            return
        self._newest = Checkpoint(
            ordinal=self.ordinal, turn=turn, messages=json.dumps(messages).encode(), digest=digest, state=state
        )
        self._rollbacks_here = 0
        self._spacing.took(time.monotonic() - begun_s)

    def _take_files(self) -> str:
        """In the environment's thread."""
        if self._environment.workspace is None:
            return ""
        if self._series is None:
            self._series = Series(self._shelf.store(), self._name, self.ordinal)
        snapshot = self._series.take(Path(self._environment.workspace))
        self.ordinal = snapshot.ordinal
        if snapshot.left_out:
            log.info("%s: snapshot %d is without %s", self._name, snapshot.ordinal, ", ".join(snapshot.left_out[:5]))
        return snapshot.digest

    async def _restore(self, checkpoint: Checkpoint, call: Call) -> None:
        if checkpoint.digest:
            await call(self._series.restore, checkpoint.digest, Path(self._environment.workspace))
        await call(self._environment.restore, checkpoint.state)


class Shelf:
    """What a process's executions share: the store of their snapshots, and what they measured, by task type."""

    def __init__(self, root: Path | None = None) -> None:
        """Without a `root` snapshots live in a temporary folder, as long as the process."""
        self._root = root
        self._temporary: tempfile.TemporaryDirectory | None = None
        self._store: Store | None = None
        self._released = 0
        self._spacings: defaultdict[str, Spacing] = defaultdict(Spacing)

    def keeper(self, name: str, task_type: str) -> Keeper:
        """For one attempt, by a name of its own."""
        return Keeper(self, name, self._spacings[task_type])

    def store(self) -> Store:
        """Made when the first snapshot is taken: most environments take none."""
        if self._store is None:
            if self._root is None:
                self._temporary = tempfile.TemporaryDirectory(prefix="gyre-snapshots-")
            self._store = Store(Path(self._temporary.name) if self._root is None else self._root)
        return self._store

    def release(self, series: Series) -> None:
        """Nobody goes back to these any more; now and then what is left over is removed. Blocks."""
        series.release()
        self._released += 1
        if self._released % COLLECT_EVERY == 0:
            self.store().collect(REFERENCE_AGE_MAX_S)

    def close(self) -> None:
        if self._temporary is not None:
            with contextlib.suppress(OSError):
                self._temporary.cleanup()
            self._temporary = self._store = None

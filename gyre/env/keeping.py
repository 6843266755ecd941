"""What an execution keeps of its world, its messages and its turns, so that it can go back (C4).

    after a turn, when it is due ──▶ Checkpoint(ordinal, turn, messages, digest of the workspace, state)
    Rollback, the next attempt ──▶ the workspace as it was, restore(state), the messages of then ──▶ the turns since, as they were, and on

Replies of the lost turns come from the journal (gyre.env.recording), so going back samples nothing twice. What breaks at the same place again is
not helped by it, and fails the execution.
"""

import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gyre.env.driving import SelfDriven
from gyre.env.environment import Environment, Rollback
from gyre.env.forking import PAYLOAD, Start, start_of
from gyre.env.recording import Journal, Redactor
from gyre.env.recording.entries import Checkpoint
from gyre.env.snapshots import Series
from gyre.env.snapshots.spacing import Spacing
from gyre.env.trail import Trail
from gyre.env.worker import Hung
from gyre.errors import GyreError, InvalidInput
from gyre.ids import sample_id

if TYPE_CHECKING:
    from gyre.env.shelf import Shelf

log = logging.getLogger(__name__)

STATE_BYTES_MAX = 2**20
"""What `Environment.snapshot` may hold; files belong into the workspace."""
ROLLBACKS_MAX = 3
"""To the same snapshot; a fourth would end as the third did."""
ROLLBACKS_TOTAL_MAX = 20
REDACTOR = Redactor()
Call = Callable[..., Awaitable[Any]]
"""Runs a method in the environment's own thread, inside the wall clock."""


class CannotResume(Exception):
    """The world of an earlier attempt does not come back; this one may have been half restored, so a new one is needed."""


class Keeper:
    """One attempt's checkpoints and journal."""

    def __init__(self, shelf: "Shelf", execution: str, attempt: int, spacing: Spacing) -> None:
        self._shelf, self._execution, self._name, self._spacing = (
            shelf,
            execution,
            sample_id(execution, attempt),
            spacing,
        )
        self._environment: Environment
        self._now_s: Callable[[], float] = time.monotonic
        self._series: Series | None = None
        self._may_resume = True
        self._turn_began_s = 0.0
        self._rollbacks = self._rollbacks_here = 0
        self.journal = Journal()
        self.trail: Trail | None = None
        """Of an agent that asks by itself, where it can go on from a snapshot."""
        self.start: Start | None = None
        """Of another execution's, where it began."""
        self.is_replay = False
        """It goes on from an earlier attempt's checkpoint."""
        self.ordinal = 0
        self.rollback_turns = 0

    def redacted(self, text: str) -> str:
        """What is told of this execution, without secrets, also where nothing else is recorded: it goes into the books."""
        return (self._shelf.redactor or REDACTOR).text(text)

    @property
    def has_acted(self) -> bool:
        """The world is not as `reset` left it."""
        return bool(self.journal.turns_since or (self.journal.checkpoint is not None and self.journal.checkpoint.turns))

    @property
    def snapshots(self) -> int:
        """The newest one's ordinal."""
        return self.trail.ordinal if self.trail is not None else self.ordinal

    def origin(self, said: str) -> str:
        """What this attempt's world comes from: another execution's; then what its environment said of that, else of an earlier attempt's. Empty
        where it is new."""
        begun = self.start.origin if self.start is not None else ""
        if self.is_replay and not said:
            said = self.trail.origin if self.trail is not None else self.journal.replays
        return " ".join(part for part in (begun, said) if part)

    async def meet(self, environment: Environment, call: Call) -> None:
        """A world is about to be built, by `reset`. Raises Hung."""
        if not isinstance(environment, SelfDriven) or not environment.can_go_on:
            return
        self.trail = self.trail or await self._shelf.trail(self._execution, self._name, self._spacing)
        environment.trail = self.trail
        if self.trail is None or self.trail.earlier is None:
            return
        try:
            await call(environment.move, self.trail.place)
        except Hung:
            raise
        except Exception as error:
            log.warning("%s begins anew, as it cannot be where it was, in %s: %s", self._name, self.trail.place, error)
            self.trail.forget()

    async def begin(
        self, environment: Environment, messages: list[dict[str, Any]], call: Call, now_s: Callable[[], float]
    ) -> list[dict[str, Any]]:  # fmt: skip
        """The world is up: with its first checkpoint, or as it was at the last one of an earlier attempt. The messages to go on from.
        `now_s` stands still while the execution is suspended: no snapshot is due for that.

        Raises InvalidInput for a workspace that is no path, CannotResume (begin again with a new world), Hung."""
        self._environment, self._now_s = environment, now_s
        if not isinstance(environment.workspace, str | Path | None):
            raise InvalidInput(f"workspace must be a path, not {type(environment.workspace).__name__}")
        await self._start(call)
        await self._begin_trail(call)
        if self._may_resume:
            quota = -1 if environment.calls_max is None else environment.calls_max
            if self.trail is not None:
                quota = max(min(quota, 0), quota - self.trail.outside_before)
            self.journal = Journal(await self._shelf.tape(self._execution), environment.outside, quota)
        checkpoint = self.journal.checkpoint
        may_repeat = self._may_resume and not isinstance(environment, SelfDriven)
        if may_repeat and checkpoint is not None and not self.journal.is_over:
            await self._resume(checkpoint, call)
            messages = json.loads(checkpoint.messages)
        else:
            self._may_resume = False
            self.journal.begin(self._name, is_replay=False)
            # Where nothing else is kept a later attempt goes on from what `reset` makes.
            self.journal.keep(Checkpoint(ordinal=0, turn=0, messages=json.dumps(messages)))
            has_state = environment.workspace is not None or type(environment).snapshot is not Environment.snapshot
            if has_state and self.trail is None:
                await self._take(0, messages, call)
        self._turn_began_s = self._now_s()
        return messages

    async def after(self, turn: int, messages: list[dict[str, Any]], call: Call) -> None:
        """A turn went well; take a snapshot when it is due. One that cannot be taken is logged and harms nobody. Raises Hung."""
        if self.ordinal == 0:
            return
        self._spacing.stepped(self._now_s() - self._turn_began_s)
        if self._spacing.is_due(self.journal.turns_since) and not self.journal.repeats:
            await self._take(turn, messages, call)
        self._turn_began_s = self._now_s()

    async def go_back(self, error: Rollback, call: Call) -> tuple[list[dict[str, Any]], int]:
        """(messages, turn) of the newest checkpoint, with the world as it was then. Raises `error` where there is none or it was no help, Hung, and
        whatever restoring raises."""
        self._rollbacks, self._rollbacks_here = self._rollbacks + 1, self._rollbacks_here + 1
        newest, lost = self.journal.checkpoint, self.journal.turns_since
        if not newest.ordinal or self._rollbacks_here > ROLLBACKS_MAX or self._rollbacks > ROLLBACKS_TOTAL_MAX:
            raise error
        log.info("%s goes back %d turns to snapshot %d: %s", self._name, lost, newest.ordinal, error)
        self._spacing.failed()
        self.rollback_turns += lost
        await self._restore(newest, call)
        self.journal.rewind()
        self._turn_began_s = self._now_s()
        return json.loads(newest.messages), newest.turn

    async def close(self, reason: str) -> None:
        """The attempt is over, for the reason of its ending; without one it was cancelled, and what is on record is for the next attempt."""
        try:
            if reason:
                self.journal.over(reason)
            if self.trail is not None:
                released = await asyncio.to_thread(self.trail.close, bool(reason))
                if released is not None:
                    await asyncio.to_thread(self._shelf.release, released)
            if self._series is not None and (reason or not self._shelf.records):
                await asyncio.to_thread(self._shelf.release, self._series)
        except (GyreError, OSError) as error:  # it costs a disk something, and the execution nothing
            log.warning("%s: what was kept of it is not let go: %s", self._name, error)
        finally:
            self.journal.close()

    async def _start(self, call: Call) -> None:
        """A task that begins where another execution was. What goes on from a snapshot of its own has been there. Raises InvalidInput, Hung, and as
        Store.restore."""
        self.start = start_of(self._environment.task.payload)
        if self.start is None or (self.trail is not None and self.trail.earlier is not None):
            return
        if self._environment.workspace is None:
            raise InvalidInput(f"payload.{PAYLOAD} needs an environment with a workspace")
        await call(self._shelf.restore, self.start, Path(self._environment.workspace))

    async def _begin_trail(self, call: Call) -> None:
        """Raises CannotResume, Hung."""
        if (trail := self.trail) is None:
            return
        agents = self._environment
        if trail.earlier is not None:
            try:
                await call(trail.restore, agents.tree)
            except Hung:
                raise
            except Exception as error:
                log.warning(
                    "%s begins anew, as snapshot %d does not come back: %s", self._name, trail.earlier.ordinal, error
                )
                trail.forget()
                raise CannotResume from error
        await call(trail.begin, agents.tree, agents.place)
        self.is_replay, self.rollback_turns = trail.is_replay, trail.lost_turns

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
        text = json.dumps(messages)
        self.journal.keep(Checkpoint(ordinal=self.ordinal, turn=turn, messages=text, digest=digest, state=state))
        self._rollbacks_here = 0
        self._spacing.took(time.monotonic() - begun_s)

    def _take_files(self) -> str:
        """In the environment's thread."""
        if self._environment.workspace is None:
            return ""
        snapshot = self._files().take(Path(self._environment.workspace))
        self.ordinal = snapshot.ordinal
        if snapshot.left_out:
            log.info("%s: snapshot %d is without %s", self._name, snapshot.ordinal, ", ".join(snapshot.left_out[:5]))
        return snapshot.digest

    def _files(self) -> Series:
        if self._series is None:
            self._series = Series(
                self._shelf.store(), self._execution if self._shelf.records else self._name, self.ordinal
            )
        return self._series

    async def _resume(self, checkpoint: Checkpoint, call: Call) -> None:
        self._may_resume = False
        try:
            if checkpoint.ordinal:
                await self._restore(checkpoint, call)
        except Hung:
            raise
        except Exception as error:
            log.warning("%s begins anew, as snapshot %d does not come back: %s", self._name, checkpoint.ordinal, error)
            raise CannotResume from error
        self.ordinal, self.is_replay = checkpoint.ordinal, True
        if self._series is not None:
            self._series.ordinal = checkpoint.ordinal
        self.journal.begin(self._name, is_replay=True)
        log.info("%s goes on from snapshot %d, %d turns", self._name, checkpoint.ordinal, self.journal.turns_before)

    async def _restore(self, checkpoint: Checkpoint, call: Call) -> None:
        if checkpoint.digest:
            await call(self._files().restore, checkpoint.digest, Path(self._environment.workspace))
        await call(self._environment.restore, checkpoint.state)

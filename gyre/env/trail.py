"""What is kept of an agent that asks the model by itself, so that the next attempt goes on where a lost one was (C4).

    a call comes, none is in flight, a snapshot is due ──▶ the call waits ──▶ the agent's tree ──▶ Checkpoint(ordinal, turns, digest, place)
    a call was answered ──▶ Turned: how far it has come
    the next attempt ──▶ the same place, the tree as it was, the agent's own way to go on; what came after is lost, and counted

An agent that waits for its model has carried out what it was told and noted it, as far as it notes things at all: between two calls is to it what
between two turns is to an environment that Gyre steps. What was said before the snapshot is in the agent's own notes, and comes back as the prompt of
the new attempt's first call: a context, which is not trained, because its tokens were sampled for another attempt.
"""

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from gyre.env.recording import Tape
from gyre.env.recording.entries import Attempt, Checkpoint, Over, Turned
from gyre.env.snapshots import Series
from gyre.env.snapshots.spacing import Spacing

log = logging.getLogger(__name__)

SETTLE_S = 0.5
"""From a call's coming to the snapshot: harnesses write their notes a little behind what they do (Claude Code a tenth of a second)."""
HELD_S_MAX = 30.0
"""A call waits so long for a snapshot. One that takes longer goes on beside the agent, and is none if that changes the tree meanwhile."""
FAILURES_MAX = 10
"""In a row, each of which doubles the way to the next try: what cannot be read costs little, and may be readable again later."""


class Note(msgspec.Struct, frozen=True, kw_only=True):
    """What a checkpoint holds besides the tree."""

    place: str
    """Where the tree was: the agent's notes are full of its own paths."""
    active_s: float
    """Working time until then, over all attempts that went on from each other."""
    outside: int
    """Calls to the outside until then."""


class Trail:
    """One attempt's. What blocks says so."""

    def __init__(
        self, name: str, tape: Tape, series: Series, spacing: Spacing, wrote: Callable[[], None] = lambda: None
    ) -> None:
        """`name` of the attempt. `wrote` is told, in a thread, when a snapshot was taken or came to nothing: either has cost the store something."""
        self._name, self._tape, self._series, self._spacing, self._wrote = name, tape, series, spacing, wrote
        self._lock = threading.Lock()
        self._taking: asyncio.Task | None = None
        self._taken, self._held_until_s = asyncio.Event(), 0.0
        """What calls wait for while `_taking`, and until when, on the loop's clock."""
        self.earlier: Checkpoint | None = None
        """Of the attempt that was lost; None: this one begins anew."""
        self.is_replay = False
        self.lost_turns, self.lost_s = 0, 0.0
        """Of all attempts that went on from each other: what came after the snapshots that they went on from."""
        self.turns_before = self.outside_before = 0
        self._active_s_before = 0.0
        self.failed = 0
        """Snapshots that could not be taken."""
        self._failures = 0
        self._turns = self._turns_kept = 0
        """Calls that this attempt had answered; those of them that the last try of a snapshot had behind it."""
        self._turned_s = 0.0
        self._tree, self._place = Path(), ""
        self._now_s: Callable[[], float] = lambda: 0.0
        self._outside: Callable[[], int] = lambda: 0
        self._turns_max = 0
        self.is_spent = False
        """It has made its turns, earlier attempts' included: the call that would be the next one waits, and the agent is to be ended."""
        self._read(tape)

    def _read(self, tape: Tape) -> None:
        """Where the last attempt was. One that began anew has nothing to do with those before it."""
        furthest = None
        for entry in tape.entries:
            match entry:
                case Attempt(is_replay=True):
                    self._lose(furthest)
                    furthest = None
                case Attempt() | Over():
                    self.forget()
                    furthest = None
                case Checkpoint():
                    self.earlier = entry
                case Turned():
                    furthest = entry
        if self.earlier is not None and not self.earlier.turns:  # as `reset` left it, which may as well do it again
            self.forget()
        self._lose(furthest)

    def _lose(self, furthest: Turned | None) -> None:
        """What the attempt that went so far had behind the snapshot."""
        if self.earlier is not None and furthest is not None:
            self.lost_turns += max(0, furthest.turns - self.earlier.turns)
            self.lost_s += max(0.0, furthest.active_s - self._note_of(self.earlier).active_s)

    # -- before the agent is started

    @property
    def place(self) -> str:
        """Of the tree that `earlier` is of."""
        return self._note_of(self.earlier).place

    @property
    def ordinal(self) -> int:
        """Of the newest snapshot."""
        return self._series.ordinal

    @property
    def origin(self) -> str:
        """What a replay goes on from, by digest (C3, C11)."""
        return f"snapshot:{self.earlier.digest}" if self.earlier else ""

    def forget(self) -> None:
        """This attempt begins anew."""
        self.earlier, self.lost_turns, self.lost_s = None, 0, 0.0

    def restore(self, tree: Path) -> None:
        """Blocks. Raises as Store.restore."""
        self._series.restore(self.earlier.digest, tree)

    def begin(self, tree: Path, place: str) -> None:
        """The world is up, as `reset` made it or as it was. Blocks. Raises OSError."""
        self._tree, self._place, self.is_replay = tree, place, self.earlier is not None
        self._put(Attempt(name=self._name, is_replay=self.is_replay, at_s=time.time()))
        if self.earlier is None:
            self._take_files()
            return
        note = self._note_of(self.earlier)
        self.turns_before, self._active_s_before, self.outside_before = self.earlier.turns, note.active_s, note.outside
        self._series.ordinal = self.earlier.ordinal
        self._spacing.failed()
        log.info(
            "%s goes on from snapshot %d after %d turns; %d turns, %.0f s are lost",
            self._name, self.ordinal, self.turns_before, self.lost_turns, self.lost_s,
        )  # fmt: skip

    def follow(self, now_s: Callable[[], float], outside: Callable[[], int], turns_max: int) -> None:
        """The agent is about to be started. `now_s`: its working time in this attempt, which stands still while it is suspended; `outside`: calls to
        the outside that it made."""
        self._now_s, self._outside, self._turns_max = now_s, outside, turns_max
        self._turned_s = now_s()

    # -- while it runs

    async def between(self, is_quiet: bool, is_turn: bool = True) -> None:
        """A call has come, and may go on when this returns. `is_quiet`: no other is in flight; `is_turn`: when it is answered that is one."""
        if is_turn and self.turns_before and self.turns_before + self._turns >= self._turns_max:
            self.is_spent = True
            await asyncio.Event().wait()
        if is_quiet and self._is_due():
            self._taken, self._held_until_s = asyncio.Event(), asyncio.get_running_loop().time() + HELD_S_MAX
            self._taking = asyncio.ensure_future(self._take(self._taken))
        await self._settled(self._held_until_s)  # it may have been begun for a call that was given up since

    def answered(self) -> None:
        """A call was."""
        self._turns += 1
        now_s = self._now_s()
        self._spacing.stepped(now_s - self._turned_s)
        self._turned_s = now_s
        with self._logged("how far it has come is not noted"):
            self._put(Turned(turns=self.turns_before + self._turns, active_s=self._active_s_before + now_s))

    async def rest(self) -> None:
        """The agent has ended; its tree is somebody else's from here on."""
        await self._settled(asyncio.get_running_loop().time() + HELD_S_MAX)

    async def _settled(self, until_s: float) -> None:
        """The snapshot under way is taken, or the loop's clock says `until_s`. What is tidied up after it nobody waits for."""
        if self._taking is not None and not self._taken.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(until_s):
                    await self._taken.wait()

    def said(self) -> dict[str, float | int]:
        """For the record of the execution."""
        found = {"taken": self.ordinal, "failed": self.failed}
        if self.is_replay:
            found |= {"turns_before": self.turns_before, "lost_turns": self.lost_turns, "lost_s": round(self.lost_s, 1)}
        return found

    def close(self, is_over: bool) -> Series | None:
        """What is to be released, where nobody goes on from here. Blocks."""
        try:
            if is_over:
                self._put(Over(reason="over", at_s=time.time()))
                self._tape.remove()
        finally:
            self._tape.close()
        return self._series if is_over else None

    def _is_due(self) -> bool:
        if self._taking is not None and not self._taking.done():
            return False
        passed = self._turns - self._turns_kept
        return passed > 0 and passed >= self._spacing.interval_turns() * 2**self._failures

    async def _take(self, taken: asyncio.Event) -> None:
        try:
            await asyncio.sleep(SETTLE_S)
            await asyncio.to_thread(self._take_files)
        finally:
            taken.set()
            self._turned_s = self._now_s()  # a snapshot's time is its own, and no turn's
        with self._logged("the store is not tidied"):
            await asyncio.to_thread(self._wrote)

    def _take_files(self) -> None:
        """One that cannot be taken is logged, counted, and harms nobody."""
        begun_s, turns, self._turns_kept = time.monotonic(), self.turns_before + self._turns, self._turns
        note = Note(
            place=self._place,
            active_s=self._active_s_before + self._now_s(),
            outside=self.outside_before + self._outside(),
        )
        with self._logged(f"no snapshot after turn {turns}"):
            snapshot = self._series.take(self._tree, is_at_once=True)
            checkpoint = Checkpoint(
                ordinal=snapshot.ordinal, turn=self._turns, messages="[]", digest=snapshot.digest, state=msgspec.json.encode(note), turns=turns,
            )  # fmt: skip
            self._put(checkpoint)
            self._failures = 0
            self._spacing.took(SETTLE_S + time.monotonic() - begun_s)
            return
        self.failed += 1
        self._failures = min(self._failures + 1, FAILURES_MAX)

    @contextlib.contextmanager
    def _logged(self, what: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            log.warning("%s: %s: %s", self._name, what, error)

    def _put(self, entry: Attempt | Checkpoint | Turned | Over) -> None:
        with self._lock:
            self._tape.append(entry)

    @staticmethod
    def _note_of(checkpoint: Checkpoint) -> Note:
        return msgspec.json.decode(checkpoint.state, type=Note)

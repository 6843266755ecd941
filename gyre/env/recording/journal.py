"""Where an execution stands in what was recorded since its last checkpoint.

After going back, or in an attempt that goes on from an earlier one, replies are those on record as long as the world does as it did. Calls to tools
inside the world are carried out again, because the world is as it was before them; calls to the outside were made already and are answered from
the record, in order. One that differs from what was recorded is refused: the outside world has seen something else.
"""

import asyncio
import copy
import hashlib
import time
from collections.abc import Awaitable, Callable, Collection
from typing import Any

import msgspec

from gyre.env.environment import StepResult, ToolCall
from gyre.env.recording.entries import (
    Asked,
    Attempt,
    Called,
    Checkpoint,
    Cut,
    Departed,
    Entry,
    Over,
    Raised,
    Reply,
    canonical,
    difference,
)
from gyre.env.recording.redaction import LARGE_CHARS
from gyre.env.recording.tape import Tape

UNKNOWN = "error: the process was lost while this call was under way; whether it was carried out is not known"
"""What a replay says of such a call: making it again might do it twice."""


class Journal:
    """One attempt's. Without a `tape` it lasts as long as the process, and nothing is redacted."""

    def __init__(
        self, tape: Tape | None = None, outside: Collection[str] = (), quota: int = -1, quota_lasts: bool = False
    ) -> None:
        """`outside`: tools that reach beyond the world. `quota`: calls to them that an execution may make; -1: any number. `quota_lasts`: what was
        used of it stays used, also by an attempt that begins anew."""
        self._tape, self._outside, self._quota, self._quota_lasts = tape, frozenset(outside), quota, quota_lasts
        self._forget()
        for entry in tape.entries if tape is not None else ():
            self._fold(entry)

    def _forget(self) -> None:
        self._replies: list[Reply] = []
        self._inside: list[Called] = []
        self._beyond: list[Called] = []
        self._beyond_made = 0
        self._under_way: Asked | None = None
        self.checkpoint: Checkpoint | None = None
        self.is_over = False
        self.turns_before = 0
        """Turns of the earlier attempts from which this one goes on."""
        self.calls = 0
        """Tool calls on record."""
        self.rewind()

    @property
    def quota_left(self) -> int:
        """-1: any number."""
        return self._quota if self._quota < 0 else max(0, self._quota - self._beyond_made)

    @property
    def replays(self) -> str:
        """What an attempt goes on from: the snapshot of its world, and the responses from outside, by digest (C3, C11)."""
        known = hashlib.sha256(
            msgspec.json.encode([(call.name, call.arguments_digest, call.content) for call in self._beyond])
        )
        parts = [f"snapshot:{self.checkpoint.digest}"] if self.checkpoint.digest else []
        return " ".join([*parts, f"responses:sha256:{known.hexdigest()}"])

    @property
    def turns_since(self) -> int:
        """Turns that the world is past its checkpoint."""
        return self._at_reply

    @property
    def repeats(self) -> bool:
        """There is more to repeat; a checkpoint would forget it."""
        return self._at_reply < len(self._replies) or self._at_beyond < len(self._beyond)

    @property
    def repeats_outside(self) -> bool:
        """The next call outside is answered from the record."""
        return self._at_beyond < len(self._beyond)

    @property
    def is_outside_under_way(self) -> bool:
        """A call outside is being made."""
        return self._under_way is not None

    def rewind(self) -> None:
        """The world is as it was at the checkpoint."""
        self._at_reply = self._at_inside = self._at_beyond = 0

    def begin(self, name: str, is_replay: bool) -> None:
        """An attempt, in the world of the checkpoint or in a new one."""
        masked = next((at for at, reply in enumerate(self._replies) if reply.is_masked), None)
        under_way = self._under_way
        self._put(Attempt(name=name, is_replay=is_replay, at_s=time.time()))
        if is_replay and under_way is not None:
            self._put(
                Called(
                    ordinal=self.calls + 1, name=under_way.name, arguments=under_way.arguments, arguments_digest=under_way.arguments_digest,
                    content=UNKNOWN, error=True, is_outside=True, at_s=under_way.at_s, quota_left=self._quota_after(True),
                )
            )  # fmt: skip
        if is_replay and masked is not None:
            # What was redacted cannot be carried out; the model is asked from there on, and what it calls outside must still agree.
            self._put(Cut(replies=masked, inside=len(self._inside)))
        self.rewind()

    def keep(self, checkpoint: Checkpoint) -> None:
        """Nothing before it is repeated any more."""
        self._put(msgspec.structs.replace(checkpoint, turns=self.turns_before + checkpoint.turn))

    def next_reply(self) -> Reply | None:
        """What the model said here before; None: ask it."""
        if self._at_reply == len(self._replies):
            return None
        self._at_reply += 1
        return copy.deepcopy(self._replies[self._at_reply - 1])

    def said(self, message: dict[str, Any], turn: int) -> None:
        """A new reply."""
        self._put(Reply(turn=turn, message=copy.deepcopy(message)))
        self._at_reply = len(self._replies)

    async def call(
        self, call: ToolCall, carry_out: Callable[[], Awaitable[Any]], is_outside: bool | None = None
    ) -> Any:  # fmt: skip
        """Its StepResult from the record, or carried out and recorded. What is no StepResult is handed on as it is. `is_outside` where its name
        does not say it.

        Raises Departed, and what `carry_out` raises; then nothing is recorded."""
        name, text, digest = await _aside(self._asked, call, *call.arguments.values())
        is_outside = call.name in self._outside if is_outside is None else is_outside
        if is_outside and self._at_beyond < len(self._beyond):
            known = self._beyond[self._at_beyond]
            if said := difference(known, name, text, digest):
                raise Departed(said)
            self._at_beyond += 1
            return _result(known)
        if is_outside and self.quota_left == 0:
            return StepResult(content=f"error: the quota of {self._quota} calls is used up", error=True)
        at_s, begun_s = time.time(), time.monotonic()
        if is_outside:
            self._put(Asked(name=name, arguments=text, arguments_digest=digest, at_s=at_s))
        try:
            result = await carry_out()
        except Exception:
            if is_outside:
                self._put(Raised(at_s=time.time()))
            raise
        if not isinstance(result, StepResult) or not isinstance(result.content, str):
            return result
        content = await _aside(self._clean, result.content, result.content)
        made = Called(
            ordinal=self.calls + 1, name=name, arguments=text, arguments_digest=digest, is_outside=is_outside, at_s=at_s,
            content=content, error=result.error, done=result.done, truncated=result.truncated, reward=result.reward,
            took_s=time.monotonic() - begun_s, quota_left=self._quota_after(is_outside),
        )  # fmt: skip
        return self._repeated(made) if not is_outside else self._recorded(made)

    def _asked(self, call: ToolCall) -> tuple[str, str, str]:
        """(name, arguments, their digest), redacted."""
        if self._tape is None:
            return call.name, *canonical(call.arguments)
        redactor = self._tape.redactor
        text, digest = canonical(redactor.value(call.arguments))
        return redactor.text(call.name), redactor.document(text), digest

    def _clean(self, text: str) -> str:
        return text if self._tape is None else self._tape.redactor.document(text)

    def _quota_after(self, is_outside: bool) -> int:
        return self.quota_left - (is_outside and self.quota_left > 0)

    def over(self, reason: str) -> None:
        """It ended by itself."""
        self._put(Over(reason=reason, at_s=time.time()))

    def close(self) -> None:
        if self._tape is not None:
            self._tape.close()

    def _repeated(self, made: Called) -> StepResult:
        """A call inside the world, which may have been made before the world went back."""
        if self._at_inside < len(self._inside):
            known = self._inside[self._at_inside]
            if not difference(known, made.name, made.arguments, made.arguments_digest) and _result(known) == _result(
                made
            ):
                self._at_inside += 1
                return _result(known)
            self._put(Cut(replies=self._at_reply, inside=self._at_inside))
        return self._recorded(made)

    def _recorded(self, made: Called) -> StepResult:
        """The model is shown what is on record, so that a replay shows it the same."""
        self._put(made)
        self._at_inside, self._at_beyond = self._at_inside + (not made.is_outside), self._at_beyond + made.is_outside
        return _result(made)

    def _put(self, entry: Entry) -> None:
        """On record first; what stays in memory is not redacted."""
        if self._tape is not None:
            self._tape.append(entry)
        self._fold(entry)

    def _fold(self, entry: Entry) -> None:
        match entry:
            case Attempt(is_replay=False):
                made = self._beyond_made
                self._forget()
                self._beyond_made = made if self._quota_lasts else 0
            case Attempt():
                self.turns_before = self.checkpoint.turns + len(self._replies)
                self.checkpoint = msgspec.structs.replace(self.checkpoint, turn=0)
                self._replies = [msgspec.structs.replace(reply, turn=0) for reply in self._replies]
            case Checkpoint():
                self.checkpoint = entry
                self._replies, self._inside, self._beyond = [], [], []
                self.rewind()
            case Reply():
                self._replies.append(entry)
            case Asked():
                self._under_way = entry
            case Raised():
                self._under_way = None
            case Called():
                self._under_way = None if entry.is_outside else self._under_way
                self.calls, self._beyond_made = entry.ordinal, self._beyond_made + entry.is_outside
                (self._beyond if entry.is_outside else self._inside).append(entry)
            case Cut():
                del self._replies[entry.replies :], self._inside[entry.inside :]
            case Over():
                self.is_over = True


async def _aside(work: Callable[[Any], Any], given: Any, *parts: Any) -> Any:
    """`work(given)`, in a thread where it may take long: other executions go on meanwhile."""
    if sum(len(part) for part in parts if isinstance(part, str)) < LARGE_CHARS:
        return work(given)
    return await asyncio.to_thread(work, given)


def _result(called: Called) -> StepResult:
    return StepResult(
        content=called.content, done=called.done, error=called.error, truncated=called.truncated, reward=called.reward
    )

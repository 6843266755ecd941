"""What is on record of an execution, and how two calls differ. Pure."""

import hashlib
import json
from typing import Any

import msgspec

from gyre.errors import Conflict

SHOWN_CHARS = 300
ARGUMENTS_CHARS_MAX = 4096
"""Longer ones are on record by their digest and their beginning."""


class Departed(Conflict):
    """A replay asked for another call than was recorded."""

    code = "replay_departed"


class Attempt(msgspec.Struct, frozen=True, kw_only=True, tag="attempt"):
    """An attempt began: in a new world, which forgets what was recorded, or going on from the last checkpoint."""

    name: str
    is_replay: bool
    at_s: float


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True, tag="checkpoint"):
    """A moment of an execution to which it can go back; what was recorded before is not needed any more."""

    ordinal: int
    turn: int
    """Model calls of its attempt before it."""
    messages: str
    """JSON, as they stood."""
    digest: str = ""
    """Of the workspace's snapshot; empty where there is no workspace."""
    state: bytes = b""
    turns: int = 0
    """Turns before it, those of earlier attempts that it goes on from included."""


class Reply(msgspec.Struct, frozen=True, kw_only=True, tag="reply"):
    """What the model said."""

    turn: int
    """Its number among the model calls of its attempt, from 1."""
    message: dict[str, Any]
    is_masked: bool = False
    """Something in it was redacted, so it cannot be carried out again."""


class Asked(msgspec.Struct, frozen=True, kw_only=True, tag="asked"):
    """A call outside is about to be made: should its result never be recorded, nobody knows whether it was."""

    name: str
    arguments: str
    arguments_digest: str
    at_s: float


class Raised(msgspec.Struct, frozen=True, kw_only=True, tag="raised"):
    """The call that was asked for raised in the environment, which knows what that means; it may be made again."""

    at_s: float


class Called(msgspec.Struct, frozen=True, kw_only=True, tag="call"):
    """A tool call and what it led to."""

    ordinal: int
    """Counts the execution's calls, from 1."""
    name: str
    arguments: str
    """Canonical JSON, redacted, its beginning."""
    arguments_digest: str
    """sha256 of all of it, redacted."""
    content: str
    error: bool = False
    done: bool = False
    truncated: bool = False
    reward: float = 0.0
    is_outside: bool = False
    at_s: float = 0.0
    took_s: float = 0.0
    quota_left: int = -1
    """Calls to outside tools still allowed after it; -1 where no number is set."""


class Cut(msgspec.Struct, frozen=True, kw_only=True, tag="cut"):
    """A repeated world did otherwise: of what was recorded since the checkpoint only so many replies and calls inside it are still true."""

    replies: int
    inside: int


class Turned(msgspec.Struct, frozen=True, kw_only=True, tag="turned"):
    """How far an agent that asks the model by itself has come: calls that were answered, and its working time, over all attempts that went on from
    each other."""

    turns: int
    active_s: float


class Over(msgspec.Struct, frozen=True, kw_only=True, tag="over"):
    """The execution ended by itself: nothing goes on from here."""

    reason: str
    at_s: float


Entry = Attempt | Checkpoint | Reply | Asked | Raised | Called | Cut | Turned | Over


def canonical(arguments: Any) -> tuple[str, str]:
    """(JSON with sorted keys, its sha256)."""
    text = json.dumps(arguments, sort_keys=True, ensure_ascii=False)
    return text, hashlib.sha256(text.encode(errors="replace")).hexdigest()


def difference(recorded: Called, name: str, arguments: str, digest: str) -> str:
    """What was recorded and what was asked for, where they begin to differ; empty when they are the same."""
    if recorded.name == name and recorded.arguments_digest == digest:
        return ""
    said = f"call {recorded.ordinal} departs from the record: recorded {recorded.name}({_shown(recorded.arguments)}), "
    said += f"asked {name}({_shown(arguments)})"
    if recorded.name == name:
        common = next((i for i, (a, b) in enumerate(zip(recorded.arguments, arguments, strict=False)) if a != b), None)
        at = common if common is not None else min(len(recorded.arguments), len(arguments))
        said += f"; they differ from character {at + 1} of the arguments on"
    return said


def _shown(text: str) -> str:
    return text if len(text) <= SHOWN_CHARS else text[:SHOWN_CHARS] + "…"

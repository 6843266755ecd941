"""The bounds an execution has, and how it ended: what an episode is given and what it gives back."""

from typing import Any

import msgspec

from gyre.env.limits import check_sendable
from gyre.env.scoring import Evaluated
from gyre.errors import InvalidInput


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds of the execution, as assigned."""

    wall_s: float
    turns_max: int
    observation_bytes_max: int
    context_tokens_max: int = 0
    """What the model takes, prompt and reply together; 0: not known."""


class Ending(msgspec.Struct, frozen=True, kw_only=True):
    """How it ended; the words are ExecutionEnded's."""

    ending: str
    reason: str
    detail: str = ""
    evaluation: Evaluated | None = None
    external_calls: int = 0
    snapshots: int = 0
    rollback_turns: int = 0
    quota_left: int = -1


class Over(Exception):
    """The conversation is over."""

    def __init__(self, ending: str, reason: str, detail: str = "") -> None:
        super().__init__(reason)
        self.ending, self.reason, self.detail = ending, reason, detail


def checked_messages(what: str, messages: Any) -> list[dict[str, Any]]:
    """Raises InvalidInput for what is no history in OpenAI's chat format."""
    if not isinstance(messages, list) or not messages or not all(isinstance(m, dict) and "role" in m for m in messages):
        raise InvalidInput(f"{what} must return a list of messages in OpenAI's chat format")
    check_sendable(f"{what}'s messages", messages)
    return list(messages)

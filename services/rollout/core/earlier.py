"""Inputs of earlier responses, by which later ones go on without sending them again (`previous_response_id`).

    r1 ── own messages ──┬── r2 ── own ──── r3 ── own          each response has what its input holds beyond the input it goes on from,
                         └── r4 ── own                         so a message is kept once, however many go on from it

What was used longest ago is forgotten first, and nothing that another one stands on. Records hold tokens and no inputs, so a gateway that takes a
session over knows none.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from services.rollout.core.normal import Message

BYTES_MAX = 4 << 20
"""Of the bodies that inputs came in, of one session; one conversation may have more, which its context bounds."""


@dataclass(frozen=True, slots=True)
class Input:
    """What a response was asked."""

    messages: list[Message]
    """The conversation but for `instructions`, which do not carry over. Never changed."""
    previous: str
    """The call whose response it goes on from; empty where all of it was sent."""
    size: int
    """Bytes of the body that it came in."""


class _Kept:
    """A response's input: the first `shared` messages are those of its parent's, what follows is its own."""

    __slots__ = ("children", "last", "length", "own", "parent", "shared", "size")

    def __init__(self, parent: "_Kept | None", messages: Sequence[Message], size: int) -> None:
        shared = parent.length if parent is not None else 0
        if shared and messages[shared - 1] is not parent.last:  # type: ignore[union-attr]  an assistant's turn that the reply goes on with
            shared -= 1
        self.parent, self.shared, self.own = parent, shared, messages[shared:]
        self.length, self.last = len(messages), messages[-1] if messages else None
        self.size, self.children = size, 0

    def messages(self) -> list[Message]:
        parts, kept, end = list[Sequence[Message]](), self, self.length
        while kept is not None:
            parts.append(kept.own[: max(0, end - kept.shared)])
            kept, end = kept.parent, min(end, kept.shared)
        return [message for part in reversed(parts) for message in part]


class Earlier:
    """Of one session."""

    def __init__(self) -> None:
        self._kept: dict[str, _Kept] = {}
        """By the names of calls; the one that was used last at the end."""
        self._size = 0

    def messages(self, name: str) -> list[Message] | None:
        """The input of the call of this name, in a list of the caller's own; None: it is not known."""
        if (kept := self._kept.pop(name, None)) is None:
            return None
        self._kept[name] = kept
        return kept.messages()

    def keep(self, name: str, asked: Input) -> None:
        """A retry changes nothing. Nor does what goes on from an input that was forgotten meanwhile."""
        parent = self._kept.get(asked.previous)
        if name in self._kept or (asked.previous and parent is None):
            return
        self._kept[name] = _Kept(parent, asked.messages, asked.size)
        self._size += asked.size
        if parent is not None:
            parent.children += 1
        while self._size > BYTES_MAX and (oldest := self._oldest_end()) not in ("", name):
            self._forget(oldest)

    def _oldest_end(self) -> str:
        return next((name for name, kept in self._kept.items() if not kept.children), "")

    def _forget(self, name: str) -> None:
        kept = self._kept.pop(name)
        self._size -= kept.size
        if kept.parent is not None:
            kept.parent.children -= 1

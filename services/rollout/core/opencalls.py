"""Calls that are not whole yet: whether it is worth reading one again, each character of it looked at once.

Reading a call costs as much as it is long, and a model may write closing marks into its texts without end. While one of its texts is open, or another
has begun, nothing new would be read.
"""

import re
from collections.abc import Callable
from typing import Protocol

from services.rollout.core.calls_xml import Marks

_SPACE = re.compile(r"\s*")
_OF_STRING = re.compile(r'[^"\\]*+(?:\\.[^"\\]*+)*+', re.DOTALL)
_OF_OBJECT = re.compile(r'[^"{}\[\]<]*+')
_BEHIND_STRING = ",:}]"


class Skim(Protocol):
    """Of one open call."""

    def is_due(self, text: str) -> bool:
        """Whether it may be whole, or certainly none, now; `text` goes on from the one of the last call."""
        ...


class JsonSkim:
    """Of the object that begins at `at` and was valid so far. Of errors those are seen that models make: marks and words outside of strings."""

    def __init__(self, at: int) -> None:
        self._at = at
        self._depth = 0
        self._in_string = self._behind_string = False

    def is_due(self, text: str) -> bool:
        while True:
            if self._in_string:
                self._at = _OF_STRING.match(text, self._at).end()  # type: ignore[union-attr]
                if not text.startswith('"', self._at):
                    return False
                self._at, self._in_string, self._behind_string = self._at + 1, False, True
            if self._behind_string:
                self._at = _SPACE.match(text, self._at).end()  # type: ignore[union-attr]
                if self._at == len(text):
                    return False
                if text[self._at] not in _BEHIND_STRING:
                    return True
                self._behind_string = False
            self._at = _OF_OBJECT.match(text, self._at).end()  # type: ignore[union-attr]
            if self._at == len(text):
                return False
            match text[self._at]:
                case '"':
                    self._in_string = True
                case "{" | "[":
                    self._depth += 1
                case "}" | "]" if self._depth > 1:
                    self._depth -= 1
                case _:
                    return True
            self._at += 1


class MarksSkim:
    """Of a call between marks whose name ends at `at`."""

    def __init__(self, at: int, marks: Marks) -> None:
        self._at = at
        self._begun: int | None = None
        """Of the parameter's text that is open."""
        self._marks = marks

    def is_due(self, text: str) -> bool:
        end = self._marks.parameter_end
        while True:
            if self._begun is None:
                if (begun := self._marks.begun(text, self._at)) is None:
                    return not self._marks.is_cut(text, self._at)
                self._begun = self._at = begun
            ended = text.find(end, self._at)
            if ended < 0:
                self._at = max(self._at, len(text) - len(end) + 1)
                return False
            if self._marks.over.search(text, self._begun, ended) is not None:
                return True
            self._begun, self._at = None, ended + len(end)


class Open:
    """A call that began at `start` and was cut when it was read last."""

    def __init__(self, start: int, skim: Callable[[str], Skim | None]) -> None:
        """`skim`: of the text that is there; None where it is read again whenever there is more."""
        self.start = start
        self._make = skim
        self._skim: Skim | None = None
        self._read = self._seen = 0

    def read(self, text: str) -> "Open":
        """It was read in `text`, and is still cut."""
        self._read, self._seen = len(text) - self.start, len(text)
        return self

    def is_due(self, text: str) -> bool:
        """An error that no skim sees is seen when there is twice as much."""
        seen, self._seen = self._seen, len(text)
        if len(text) - self.start >= 2 * self._read:
            return True
        if self._skim is None:
            if not text[seen:].strip():
                return False  # a call does not begin with white space, however much of it there is
            self._skim = self._make(text)
        return self._skim is None or self._skim.is_due(text)

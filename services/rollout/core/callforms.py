"""Forms of a call: how what stands between its opening and its closing mark is read. All of it at a cost that is its length."""

import re
from dataclasses import dataclass
from typing import Protocol

from services.rollout.core.calls_json import Read, Said, bare_call, json_call
from services.rollout.core.calls_xml import Marks, Schemas, marked_call
from services.rollout.core.opencalls import JsonSkim, MarksSkim, Skim

_SPACE = re.compile(r"\s*")
_OF_ARRAY = re.compile(r"\s*\[?\s*")


class Form(Protocol):
    """One form."""

    def read(self, text: str, at: int, schemas: Schemas) -> Read:
        """The call behind an opening mark that ends at `at`, up to where the closing mark must stand."""
        ...

    def skim(self, text: str, at: int) -> Skim | None:
        """Of one that is open; None where it is read again whenever there is more."""
        ...


@dataclass(frozen=True, slots=True)
class Marked:
    """Texts between marks."""

    marks: Marks

    def read(self, text: str, at: int, schemas: Schemas) -> Read:
        said, end = marked_call(text, _space(text, at), schemas, self.marks)
        return (Said(*said) if said is not None else None), end

    def skim(self, text: str, at: int) -> Skim | None:
        named = self.marks.name.match(text, _space(text, at))
        return MarksSkim(named.end(), self.marks) if named is not None else None


@dataclass(frozen=True, slots=True)
class JsonOrMarked:
    """An object with name and arguments, or texts between marks that begin with `sign`."""

    marked: Marked
    sign: str

    def read(self, text: str, at: int, schemas: Schemas) -> Read:
        begin = _space(text, at)
        if text.startswith(self.sign, begin):
            return self.marked.read(text, begin, schemas)
        if text.startswith("{", begin):
            return json_call(text, begin)
        return None, None if self.sign.startswith(text[begin:]) else at

    def skim(self, text: str, at: int) -> Skim | None:
        begin = _space(text, at)
        return JsonSkim(begin) if text.startswith("{", begin) else self.marked.skim(text, begin)


@dataclass(frozen=True, slots=True)
class JsonOfArray:
    """An object with name and arguments, maybe the first of an array."""

    def read(self, text: str, at: int, schemas: Schemas) -> Read:
        begin = _object(text, at)
        if text.startswith("{", begin):
            return json_call(text, begin)
        return None, None if begin == len(text) else at

    def skim(self, text: str, at: int) -> Skim | None:
        begin = _object(text, at)
        return JsonSkim(begin) if text.startswith("{", begin) else None


@dataclass(frozen=True, slots=True)
class JsonAlone:
    """An object with name and arguments, and no mark that says so."""

    marks: tuple[str, ...]
    """What may stand before it, each at most once and in this order."""

    def read(self, text: str, at: int, schemas: Schemas) -> Read:
        begin = self._begin(text, at)
        if text.startswith("{", begin):
            return bare_call(text, begin)
        return None, None if any(mark.startswith(text[begin:]) for mark in self.marks) else at

    def skim(self, text: str, at: int) -> Skim | None:
        begin = self._begin(text, at)
        return JsonSkim(begin) if text.startswith("{", begin) else None

    def _begin(self, text: str, at: int) -> int:
        at = _space(text, at)
        for mark in self.marks:
            if text.startswith(mark, at):
                at = _space(text, at + len(mark))
        return at


def _space(text: str, at: int) -> int:
    return _SPACE.match(text, at).end()  # type: ignore[union-attr]


def _object(text: str, at: int) -> int:
    return _OF_ARRAY.match(text, at).end()  # type: ignore[union-attr]

"""How many steps a backtracking matcher takes to look through a text for a pattern: the growth of a rule's work, counted and not timed.

Walks the tree that Python's own compiler makes of the pattern. Knows what the rules of redaction use; anything else is a KeyError.
"""

import re
from collections.abc import Callable, Iterator
from re import _constants as op
from re import _parser

_CATEGORIES = {
    op.CATEGORY_SPACE: str.isspace,
    op.CATEGORY_NOT_SPACE: lambda c: not c.isspace(),
    op.CATEGORY_WORD: lambda c: c.isalnum() or c == "_",
    op.CATEGORY_NOT_WORD: lambda c: not (c.isalnum() or c == "_"),
    op.CATEGORY_DIGIT: str.isdigit,
}


class Steps:
    """Of one pattern."""

    def __init__(self, pattern: str) -> None:
        self._tree = _parser.parse(pattern)
        self._folds = bool(self._tree.state.flags & re.IGNORECASE)
        self._text, self.count = "", 0

    def through(self, text: str) -> int:
        """Steps to find all that matches, one after the other."""
        self._text, self.count = text.lower() if self._folds else text, 0
        at = 0
        while at <= len(text):
            end = next(self._ends(list(self._tree), at), None)
            at = end if end is not None and end > at else at + 1
        return self.count

    def _ends(self, nodes: list, at: int) -> Iterator[int]:
        """Where the rest of a match may end, in the order in which they are tried."""
        self.count += 1
        if not nodes:
            yield at
            return
        (kind, what), rest = nodes[0], nodes[1:]
        if (accepts := self._single(kind, what)) is not None:
            if at < len(self._text) and accepts(self._text[at]):
                yield from self._ends(rest, at + 1)
        elif kind in (op.MAX_REPEAT, op.MIN_REPEAT, op.POSSESSIVE_REPEAT):
            yield from self._repeated(kind, *what, rest, at)
        elif kind is op.SUBPATTERN:
            yield from self._ends([*what[3], *rest], at)
        elif kind is op.BRANCH:
            for branch in what[1]:
                yield from self._ends([*branch, *rest], at)
        elif kind in (op.ASSERT, op.ASSERT_NOT):
            direction, inner = what
            begin = at if direction > 0 else at - inner.getwidth()[1]
            found = begin >= 0 and next(self._ends(list(inner), begin), None) is not None
            if found is (kind is op.ASSERT):
                yield from self._ends(rest, at)
        else:
            edges = {op.AT_BEGINNING_STRING: 0, op.AT_END_STRING: len(self._text)}
            if {op.AT: lambda: at == edges[what]}[kind]():
                yield from self._ends(rest, at)

    def _repeated(self, kind, low: int, high: int, inner, rest: list, at: int) -> Iterator[int]:
        ends = [at]
        accepts = self._single(*inner[0]) if len(inner) == 1 else None
        if kind is op.MIN_REPEAT:
            while ends[-1] is not None:
                if len(ends) > low:
                    yield from self._ends(rest, ends[-1])
                ends.append(self._once(inner, accepts, ends[-1]))
            return
        while len(ends) <= high and (end := self._once(inner, accepts, ends[-1])) is not None:
            ends.append(end)
        tried = [ends[-1]] if kind is op.POSSESSIVE_REPEAT else reversed(ends[low:])
        for end in tried if len(ends) > low else ():
            yield from self._ends(rest, end)

    def _once(self, inner, accepts: Callable[[str], bool] | None, at: int) -> int | None:
        self.count += 1
        if accepts is not None:
            return at + 1 if at < len(self._text) and accepts(self._text[at]) else None
        return next(self._ends(list(inner), at), None)

    def _single(self, kind, what) -> Callable[[str], bool] | None:
        """For what is one character."""
        if kind is op.LITERAL:
            return lambda c: c == self._folded(what)
        if kind is op.NOT_LITERAL:
            return lambda c: c != self._folded(what)
        if kind is op.ANY:
            return lambda c: c != "\n"
        if kind is not op.IN:
            return None
        return lambda c: (
            any(self._is_in(item, c) for item in what if item[0] is not op.NEGATE) != (what[0][0] is op.NEGATE)
        )

    def _is_in(self, item, c: str) -> bool:
        kind, what = item
        if kind is op.RANGE:
            return what[0] <= ord(c) <= what[1] or (self._folds and what[0] <= ord(c.upper()) <= what[1])
        return _CATEGORIES[what](c) if kind is op.CATEGORY else c == self._folded(what)

    def _folded(self, code: int) -> str:
        return chr(code).lower() if self._folds else chr(code)

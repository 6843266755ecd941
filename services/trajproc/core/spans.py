"""Sets that cost memory by their gaps and not by their members: names of groups that are over (agent-lightning#438).

Groups are numbered as they are submitted and all of them are over some day, so what is over is everything but what is in flight: as many spans
as there are groups in flight, however long the run.
"""

from bisect import bisect_right

from gyre import ids


class Spans:
    """A set of integers as the half-open spans [start, end) that they fill, in order and apart from each other."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []

    def __len__(self) -> int:
        """Spans, not members."""
        return len(self._starts)

    def __contains__(self, number: int) -> bool:
        at = bisect_right(self._starts, number) - 1
        return at >= 0 and number < self._ends[at]

    def add(self, number: int) -> None:
        """A repeat changes nothing; a number beside a span widens it, one between two joins them."""
        at = bisect_right(self._starts, number)
        if at and number < self._ends[at - 1]:
            return
        after_one = at > 0 and self._ends[at - 1] == number
        before_one = at < len(self._starts) and self._starts[at] == number + 1
        if after_one and before_one:
            self._ends[at - 1] = self._ends.pop(at)
            del self._starts[at]
        elif after_one:
            self._ends[at - 1] = number + 1
        elif before_one:
            self._starts[at] = number
        else:
            self._starts.insert(at, number)
            self._ends.insert(at, number + 1)


class GroupNames:
    """A set of group names. Names that `gyre.ids` would not give are kept one by one."""

    def __init__(self) -> None:
        self._numbered = Spans()
        self._others: set[str] = set()

    def __contains__(self, name: str) -> bool:
        number = _number(name)
        return name in self._others if number is None else number in self._numbered

    def add(self, name: str) -> None:
        number = _number(name)
        if number is None:
            self._others.add(name)
        else:
            self._numbered.add(number)

    @property
    def size(self) -> int:
        """What it costs: spans and other names."""
        return len(self._numbered) + len(self._others)


def _number(name: str) -> int | None:
    digits = name[1:]
    return int(digits) if digits.isdecimal() and digits.isascii() and name == ids.group_id(int(digits)) else None

"""Virtual time: what happens when, in order; ties in the order in which they were set."""

import heapq
from collections.abc import Callable
from typing import Any


class Events:
    """A heap of (time, ordinal, what, with what). `what(with what, ordinal)`; whoever set an event knows by its ordinal whether it still counts."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._heap: list[tuple[float, int, Callable[[Any, int], None], Any]] = []
        self._ordinal = 0

    def at(self, at_s: float, what: Callable[[Any, int], None], argument: Any = None) -> int:
        """Returns the ordinal of the event."""
        self._ordinal += 1
        heapq.heappush(self._heap, (at_s, self._ordinal, what, argument))
        return self._ordinal

    def step(self) -> bool:
        """Go to the next time at which something happens and do all of it; False when nothing is left."""
        heap = self._heap
        if not heap:
            return False
        self.now_s = max(self.now_s, heap[0][0])
        while heap and heap[0][0] <= self.now_s:
            _, ordinal, what, argument = heapq.heappop(heap)
            what(argument, ordinal)
        return True

"""Streams of what changes: many readers, none of which can hold up the scheduler or fill its memory.

push ──▶ each reader's own queue of at most POINTS_MAX ──▶ its stream
                full: the oldest goes, and the next one that is read says how many are missing
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from typing import Any

from gyre.api.scheduler.v1 import scheduler_pb2 as pb
from gyre.errors import Overloaded
from gyre.records import RoleChanged, WaterlevelChanged
from services.scheduler.core import State

POINTS_MAX = 256
"""Twelve seconds of the waterlevel at its fastest: a reader that falls behind further than that has no use for the points between."""
READERS_MAX = 64


class _Reader:
    def __init__(self) -> None:
        self.points: deque[Any] = deque(maxlen=POINTS_MAX)
        self.lost = 0
        self.has_more = asyncio.Event()

    def push(self, point: Any) -> None:
        self.lost += len(self.points) == POINTS_MAX
        self.points.append(point)
        self.has_more.set()


class Hub:
    """Points of one kind."""

    def __init__(self) -> None:
        self._readers: set[_Reader] = set()

    def push(self, point: Any) -> None:
        """To every reader; never waits."""
        for reader in self._readers:
            reader.push(point)

    async def read(self, first: list[Any]) -> AsyncIterator[tuple[Any, int]]:
        """`first`, then every point from here on, each with the number of points lost before it, for ever. Raises Overloaded."""
        if len(self._readers) >= READERS_MAX:
            raise Overloaded(f"{READERS_MAX} readers are watching already; try again later", retry_after_s=10.0)
        reader = _Reader()
        self._readers.add(reader)
        try:
            for point in first:
                yield point, 0
            while True:
                await reader.has_more.wait()
                while reader.points:
                    lost, reader.lost = reader.lost, 0
                    yield reader.points.popleft(), lost
                reader.has_more.clear()
        finally:
            self._readers.discard(reader)


class Watched:
    """The two kinds, and what a reader that comes now has to know first."""

    def __init__(self) -> None:
        self._waterlevels, self._roles = Hub(), Hub()
        self._waterlevel: WaterlevelChanged | None = None

    def push(self, fact: WaterlevelChanged | RoleChanged) -> None:
        if isinstance(fact, WaterlevelChanged):
            self._waterlevel = fact
            self._waterlevels.push(fact)
        else:
            self._roles.push(fact)

    async def waterlevel(self) -> AsyncIterator[pb.WatchWaterlevelResponse]:
        """For ever. Raises Overloaded."""
        async for fact, lost in self._waterlevels.read([self._waterlevel] if self._waterlevel else []):
            yield pb.WatchWaterlevelResponse(
                waterlevel=fact.waterlevel, dispatched=fact.dispatched, finished=fact.finished, capacity=fact.capacity,
                outstanding_groups=fact.outstanding_groups, policy_version=fact.policy_version, burst=fact.burst, at_s=fact.at_s, lost=lost,
            )  # fmt: skip

    async def roles(self, state: State) -> AsyncIterator[pb.WatchRolesResponse]:
        """For ever, from the cells as they are in `state`. Raises Overloaded."""
        last = [
            RoleChanged(cell=name, change=cell.change, target=cell.target, phase=cell.phase, at_s=cell.at_s, burst=max(0, cell.burst))
            for name, cell in state.cells.items()
            if cell.change >= 0
        ]  # fmt: skip
        async for fact, lost in self._roles.read(last):
            yield pb.WatchRolesResponse(
                cell=fact.cell, change=fact.change, target=fact.target, phase=fact.phase, at_s=fact.at_s, duration_s=fact.duration_s,
                burst=fact.burst, moved_calls=fact.moved_calls, lost=lost,
            )  # fmt: skip

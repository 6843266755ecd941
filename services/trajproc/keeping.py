"""Trees of built samples go to disk beside everything else: nothing waits for it, and what goes wrong is logged and counted."""

import asyncio
import logging
import threading
from pathlib import Path

from services.trajproc.core.state import Sample
from services.trajproc.store import TreeStore

log = logging.getLogger(__name__)

WAITING_MAX = 64
"""Samples that wait for the disk: with the memory that their records take, a bound. Of more the trees are lost, and counted."""


class Keeping:
    """`kept` and `lost` count trees."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._waiting: asyncio.Queue[Sample] = asyncio.Queue(WAITING_MAX)
        self._store: TreeStore | None = None
        self._writing = threading.Lock()
        self.kept = 0
        self.lost = 0

    def keep(self, sample: Sample) -> None:
        """Never waits, never raises."""
        try:
            self._waiting.put_nowait(sample)
        except asyncio.QueueFull:
            self._lose(sample, "the disk is too slow")

    async def run(self) -> None:
        """For ever; when it is told to stop it writes what still waits."""
        try:
            while True:
                await asyncio.to_thread(self._put, await self._waiting.get())
        finally:
            while not self._waiting.empty():
                self._put(self._waiting.get_nowait())
            with self._writing:
                if self._store is not None:
                    self._store.close()

    def _put(self, sample: Sample) -> None:
        with self._writing:  # the thread of a task that was told to stop may be at it
            try:
                self._store = self._store or TreeStore(self._folder)
                self._store.put(sample.ready.sample_id, sample.tree, sample.leaves)
                self.kept += 1
            except Exception as error:  # whatever is wrong with a tree or a disk, training goes on
                self._lose(sample, repr(error))

    def _lose(self, sample: Sample, why: str) -> None:
        self.lost += 1
        log.warning("the tree of %s is not kept: %s", sample.ready.sample_id, why)

"""Trees of built samples go to disk beside everything else: nothing waits for it, and what goes wrong is logged and counted."""

import asyncio
import logging
import threading
from pathlib import Path
from typing import NamedTuple

from services.trajproc.core.state import Sample
from services.trajproc.core.tree import Tree
from services.trajproc.store import TreeStore

log = logging.getLogger(__name__)

WAITING_TOKENS_MAX = 16_000_000
"""Unique tokens of trees that wait for the disk, about 100 MB of records kept for it. What comes beyond is lost, and counted."""


class Waiting(NamedTuple):
    """A sample without its rows."""

    sample_id: str
    tree: Tree
    leaves: list[int]


class Keeping:
    """`kept` and `lost` count trees."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._waiting: asyncio.Queue[Waiting] = asyncio.Queue()
        self._waiting_tokens = 0
        self._store: TreeStore | None = None
        self._writing = threading.Lock()
        self.kept = 0
        self.lost = 0

    def keep(self, sample: Sample) -> None:
        """Never waits, never raises."""
        tokens = sample.tree.tokens_unique
        if self._waiting_tokens and self._waiting_tokens + tokens > WAITING_TOKENS_MAX:
            self._lose(sample.ready.sample_id, "the disk is too slow")
            return
        self._waiting_tokens += tokens
        self._waiting.put_nowait(Waiting(sample.ready.sample_id, sample.tree, sample.leaves))

    async def run(self) -> None:
        """For ever; when it is told to stop it writes what still waits."""
        try:
            while True:
                one = await self._waiting.get()
                await asyncio.to_thread(self._put, one)
                self._waiting_tokens -= one.tree.tokens_unique
        finally:
            while not self._waiting.empty():
                self._put(self._waiting.get_nowait())
            with self._writing:
                if self._store is not None:
                    self._store.close()

    def _put(self, one: Waiting) -> None:
        with self._writing:  # the thread of a task that was told to stop may be at it
            try:
                self._store = self._store or TreeStore(self._folder)
                self._store.put(*one)
                self.kept += 1
            except Exception as error:  # whatever is wrong with a tree or a disk, training goes on
                self._lose(one.sample_id, repr(error))

    def _lose(self, sample_id: str, why: str) -> None:
        self.lost += 1
        log.warning("the tree of %s is not kept: %s", sample_id, why)

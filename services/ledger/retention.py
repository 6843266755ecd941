"""Deletes in the background what is older than `ledger.retention_days` (storage.compacting says what), a slice at a time, while books are kept."""

import asyncio
import logging
import threading

import sqlalchemy as sa

from gyre.clock import Clock
from gyre.tasks import end
from services.ledger.storage import Database
from services.ledger.storage.compacting import compact

log = logging.getLogger(__name__)

EVERY_S = 600.0
"""From one look to the next: beside days it is nothing, and a look at books without anything old is one question."""
PAUSE_S = 0.2
"""Between two slices: facts go first, and a slice takes a few milliseconds."""
DAY_S = 86_400.0


class Retention:
    """One run's. `async with` keeps it going; without a setting it does nothing."""

    def __init__(self, database: Database, run: str, days: float, clock: Clock, every_s: float = EVERY_S) -> None:
        self._database, self._run, self._days, self._clock, self._every_s = database, run, days, clock, every_s
        self._closing = threading.Event()
        self._task: asyncio.Future | None = None

    async def __aenter__(self) -> "Retention":
        if self._days:
            self._task = asyncio.ensure_future(self._keep_going())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._closing.set()
        if self._task is not None:
            await end(self._task)

    async def _keep_going(self) -> None:
        while True:
            await asyncio.to_thread(self.look)
            await asyncio.sleep(self._every_s)

    def look(self) -> dict[str, int]:
        """Delete what is old now; {calls, samples, spans} as `compact`. A database that does not take it is asked again at the next look."""
        now_s = self._clock.now_s()
        try:
            told = compact(self._database, self._run, now_s - self._days * DAY_S, now_s, self._go_on)
        except sa.exc.DBAPIError as error:
            log.warning("nothing was deleted: %s", error.orig)
            return {}
        if any(told.values()):
            log.info("older than %g days: %s", self._days, ", ".join(f"{count} {name}" for name, count in told.items()))
        return told

    def _go_on(self) -> bool:
        return not self._closing.wait(PAUSE_S)

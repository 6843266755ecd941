"""A cell's claims on micro-steps: taken one at a time, kept alive, acknowledged only after the update (A7).

Nothing here decides: the core's verdict says what becomes of a claim.
"""

import asyncio
import contextlib
import logging
from collections.abc import Iterable

import msgspec

from gyre.bus import BlobStore, Delivery
from gyre.bus.work import WorkQueue
from gyre.errors import Unavailable
from gyre.records import MicroStep, decode_rows

log = logging.getLogger(__name__)

POLL_S = 0.25
"""How long one request for a claim waits; bounds how late a cell notices that it shall stop."""
HEARTBEATS = 3
"""Per claim time."""
ACK_TRIES = 5


class Claims:
    """Deliveries this cell holds, by micro-step."""

    def __init__(self, queue: WorkQueue, blobs: BlobStore, claim_s: float) -> None:
        self._queue = queue
        self._blobs = blobs
        self._claim_s = claim_s
        self._held: dict[str, Delivery] = {}

    async def take(self) -> MicroStep | None:
        """Claim the next micro-step and hold it; None when there was none within POLL_S, or it is held already. Its rows may still be in the blob
        store (`with_rows`): of what was trained long ago they are gone, and a repeat of it is only to be discarded."""
        delivery = await self._queue.next(POLL_S)
        if delivery is None:
            return None
        micro: MicroStep = delivery.record
        again = micro.micro_id in self._held
        self._held[micro.micro_id] = delivery
        return None if again else micro

    def with_rows(self, micro: MicroStep) -> MicroStep:
        """Rows that were too large for the bus come from the blob store. Raises NotFound, InvalidInput."""
        if not micro.blob:
            return micro
        return msgspec.structs.replace(micro, rows=decode_rows(self._blobs.get(micro.blob)))

    async def hand_back(self, micro_id: str, delay_s: float = 0.0) -> None:
        """Give it to anybody, after `delay_s`."""
        if (delivery := self._held.pop(micro_id, None)) is not None:
            with contextlib.suppress(Exception):  # an absent server gives it out again by itself
                await delivery.nak(delay_s)

    async def discard(self, micro_id: str) -> None:
        """Acknowledge what is done elsewhere."""
        if (delivery := self._held.pop(micro_id, None)) is not None:
            await _acknowledge(delivery)

    async def hand_back_all(self) -> None:
        for micro_id in list(self._held):
            await self.hand_back(micro_id)

    async def commit(self, micro_ids: Iterable[str]) -> None:
        """The update that trained them is on disk."""
        deliveries = [self._held.pop(micro_id) for micro_id in micro_ids if micro_id in self._held]
        await asyncio.gather(*map(_acknowledge, deliveries))

    async def keep_alive(self) -> None:
        """Say `in_progress` of all that is held, for ever."""
        while True:
            await asyncio.sleep(self._claim_s / HEARTBEATS)
            for delivery in list(self._held.values()):
                with contextlib.suppress(
                    Exception
                ):  # the connection comes back by itself, or the claim goes to another
                    await delivery.in_progress()

    async def pause(self) -> None:
        """Stop asking: an open request could be answered with a micro-step that nobody looks at."""
        await self._queue.close()


async def _acknowledge(delivery: Delivery) -> None:
    """A lost acknowledgement only means that it is delivered again, found to be done, and discarded."""
    for _ in range(ACK_TRIES):
        try:
            return await delivery.ack_confirmed()
        except Unavailable as error:
            log.warning("%s", error)

"""The processor's side of the bus: follow the facts, catch up, publish what is decided."""

import logging
from collections.abc import AsyncIterator
from typing import Any

import msgspec

from gyre.bus import BlobStore, Bus
from gyre.records import MicroStep, encode, encode_rows
from services.trajproc.core.fold import FOLDED

log = logging.getLogger(__name__)

ROWS_BYTES_MAX = 960 * 1024
"""Rows of one message; larger ones go through the blob store, so that a work queue that waits stays small. Any NATS server takes a mebibyte; what is
left of it is for headers and framing."""


class Facts:
    """Facts in order, and where the past ends."""

    def __init__(self, bus: Bus, after: int = 0) -> None:
        """`after`: the newest fact that is folded already."""
        self._bus = bus
        self._after = after

    async def follow(self) -> AsyncIterator[tuple[Any, int, bool]]:
        """Each fact, its sequence, and whether the newest one that was there at the start has been seen.

        The first item is (None, after, True) when there is no past.
        """
        past = await self._bus.last_sequence(FOLDED)
        if past <= self._after:
            yield None, self._after, True
        async for fact, delivery in self._bus.follow(FOLDED, self._after):
            # `pending` too: the newest fact of the past may be one that nobody can read.
            yield fact, delivery.sequence, delivery.sequence >= past or delivery.pending == 0


async def publish(bus: Bus, blobs: BlobStore, record: Any) -> None:
    """Durable when it returns. Rows of a micro-step that are larger than the bus takes go through the blob store."""
    if isinstance(record, MicroStep) and len(encode(record)) > ROWS_BYTES_MAX:
        digest = blobs.put(encode_rows(record.rows))
        log.info("%s: %d tokens, sent as blob %s", record.micro_id, record.tokens, digest)
        names = list(dict.fromkeys(row.sample_id for row in record.rows))
        record = msgspec.structs.replace(record, rows=[], blob=digest, sample_ids=names)
    await bus.publish(record)

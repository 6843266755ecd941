"""Work queues: take one delivery, keep its lease alive, acknowledge after the effect."""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Any

import nats
from nats.js.api import AckPolicy, ConsumerConfig

from gyre.bus import streams
from gyre.bus.client import RECONNECT_WAIT_S, Bus, Delivery
from gyre.bus.pull import Pull
from gyre.bus.subjects import subject_pattern
from gyre.errors import Unavailable
from gyre.records import MicroStep, TaskDispatched, decode_micro, decode_task

log = logging.getLogger(__name__)

UNBOUNDED = -1


class WorkQueue:
    """Takes deliveries one at a time from a shared durable consumer."""

    def __init__(self, bus: Bus, stream: str, config: ConsumerConfig, decode: Callable[[bytes], Any]) -> None:
        self._bus = bus
        self._stream = stream
        self._config = config
        self._decode = decode
        self._pull: Pull | None = None
        self.ack_wait_s: float = config.ack_wait or 30.0
        """A delivery not acknowledged and without `in_progress` for this long is delivered again, to anybody."""

    async def next(self, wait_s: float) -> Delivery | None:
        """Claim one delivery; None when there is none within `wait_s`. Waits through an absent server."""
        try:
            if self._pull is None:
                info = await self._bus.js.add_consumer(self._stream, self._config)
                self._pull = Pull(self._bus.client, self._stream, info.name, batch=1)
                await self._pull.open()
            message = await self._pull.next(wait_s)
            return None if message is None else await self._bus._decoded(message, self._decode)
        except (Unavailable, nats.errors.Error, TimeoutError) as error:
            if not self._bus.client.is_closed:
                log.info("%s: consumer lost (%s), making it anew", self._stream, error)
            await self.close()
            await asyncio.sleep(RECONNECT_WAIT_S)
            return None

    async def close(self) -> None:
        """Give up asking; what was claimed stays claimed."""
        pull, self._pull = self._pull, None
        if pull is not None:
            with contextlib.suppress(Exception):
                await pull.close()


def tasks(bus: Bus, ack_wait_s: float, max_ack_pending: int, max_deliver: int) -> WorkQueue:
    """Dispatched executions of every tier. `max_ack_pending` bounds how many run at once over all gateways."""
    config = ConsumerConfig(
        durable_name=f"{bus.run}-tasks", filter_subject=subject_pattern(bus.run, TaskDispatched), ack_policy=AckPolicy.EXPLICIT,
        ack_wait=ack_wait_s, max_ack_pending=max_ack_pending, max_deliver=max_deliver,
    )  # fmt: skip
    return WorkQueue(bus, streams.TASKS, config, decode_task)


def micros(bus: Bus, ack_wait_s: float) -> WorkQueue:
    """Micro-steps of the open step. None is acknowledged before the update that trained them all, so the server must not bound how many are out:
    a step of more could never be completed. What bounds them is the batch."""
    config = ConsumerConfig(
        durable_name=f"{bus.run}-micro", filter_subject=subject_pattern(bus.run, MicroStep), ack_policy=AckPolicy.EXPLICIT,
        ack_wait=ack_wait_s, max_ack_pending=UNBOUNDED,
    )  # fmt: skip
    return WorkQueue(bus, streams.MICRO, config, decode_micro)

"""Who serves what: a value for each key, written by compare-and-set (a JetStream key-value bucket).

    gateways.<name>      where it is and how often it said so: a gateway that says nothing new for a while is dead
    sessions.<sample>    the gateway that serves it

Of several who write a key at once one wins and the others are told; nobody has to trust anybody's clock.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass

import nats
import nats.js.errors
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy

from gyre.bus import streams
from gyre.bus.client import EXPECTED, FOLLOW_IDLE_S, PUBLISH_TIMEOUT_S, RECONNECT_WAIT_S, WRONG_LAST_SEQUENCE, Bus
from gyre.bus.pull import Pull
from gyre.errors import Conflict, Unavailable

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Claim:
    """The newest value of a key."""

    key: str
    value: str
    """Empty: given up."""
    revision: int
    """0: nobody has written it."""


class Claims:
    """The bucket as seen by one service of one run."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._prefix = f"{streams.CLAIM_SUBJECT}.{bus.run}."

    async def get(self, key: str) -> Claim:
        """Raises Unavailable when the bus does not answer."""
        try:
            found = await self._bus.js.get_last_msg(streams.CLAIMS, self._prefix + key)
        except nats.js.errors.NotFoundError:
            return Claim(key, "", 0)
        except (nats.errors.Error, TimeoutError) as error:
            raise Unavailable(f"{key} cannot be looked up: {error!r}") from error
        return Claim(key, (found.data or b"").decode(), found.seq or 0)

    async def put(self, key: str, value: str, revision: int | None = None) -> Claim:
        """Write it; with `revision` only if that is still its newest. Raises Conflict, Unavailable."""
        headers = {} if revision is None else {EXPECTED: str(revision)}
        try:
            subject, data = self._prefix + key, value.encode()
            revision = await (await self._bus.publishing.give(subject, data, headers, PUBLISH_TIMEOUT_S))
        except (nats.errors.Error, TimeoutError) as error:
            if getattr(error, "err_code", None) == WRONG_LAST_SEQUENCE:
                raise Conflict(f"{key} was written by somebody else") from error
            raise Unavailable(f"{key} could not be written: {error!r}") from error
        return Claim(key, value, revision)

    async def follow(self, pattern: str) -> AsyncIterator[Claim]:
        """The newest value of each key that fits, and whatever is written from then on, for ever."""
        after, policy = 0, DeliverPolicy.LAST_PER_SUBJECT
        while not self._bus.client.is_closed:
            config = ConsumerConfig(
                filter_subjects=[self._prefix + pattern], ack_policy=AckPolicy.NONE, mem_storage=True,
                inactive_threshold=FOLLOW_IDLE_S, deliver_policy=policy,
            )  # fmt: skip
            pull = None
            try:
                info = await self._bus.js.add_consumer(streams.CLAIMS, config)
                pull = Pull(self._bus.client, streams.CLAIMS, info.name, batch=64)
                await pull.open()
                while True:
                    message = await pull.next()
                    if message is not None and (revision := message.metadata.sequence.stream) > after:
                        after = revision
                        yield Claim(message.subject.removeprefix(self._prefix), message.data.decode(), revision)
            except (Unavailable, nats.errors.Error, TimeoutError) as error:
                log.info("claims: consumer lost (%s), making it anew", error)
                await asyncio.sleep(RECONNECT_WAIT_S)
            finally:
                if pull is not None:
                    with contextlib.suppress(Exception):
                        await pull.close()

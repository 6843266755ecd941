"""A subscription whose messages are told as the client reads them.

nats-py puts each into a queue and has a task take it out, which is a turn of the event loop for every message: more than most of ours need. The task
stays, and waits for nothing.
"""

import asyncio
import logging
from collections.abc import Callable

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

log = logging.getLogger(__name__)


async def hear(client: Client, subject: str, take: Callable[[Msg], None]) -> Subscription:
    """`take` is told of every message of `subject`, in order, until its subscription is over; it must be quick."""
    subscription = await client.subscribe(subject, cb=_nobody)
    subscription._pending_queue = _Told(subscription, take)
    return subscription


class _Told(asyncio.Queue[Msg]):
    """In place of a subscription's queue; always empty."""

    def __init__(self, subscription: Subscription, take: Callable[[Msg], None]) -> None:
        super().__init__()
        self._subscription, self._take = subscription, take

    def put_nowait(self, message: Msg) -> None:
        self._subscription._pending_size -= len(message.data)
        try:
            self._take(message)
        except Exception:  # it is the reading of the whole connection that would end
            log.exception("a message of %s was not taken", message.subject)


async def _nobody(message: Msg) -> None:
    raise AssertionError(f"{message.subject} lies in no queue")

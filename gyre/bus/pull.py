"""One JetStream consumer, read by pull requests that the server answers as messages arrive.

nats-py's `fetch(n)` waits for n messages or its time-out, which costs either latency or round trips. Here one inbox stays
subscribed, and a request for up to `batch` messages is renewed when it is used up or has expired, so a message is seen as soon as the server
has it. A consumer that the server no longer knows (restart, inactivity) is an error the caller answers by making it anew.

What has come lies in a queue of our own, from which it is taken without a task or a timer: nats-py's `next_msg` makes three tasks for each message,
which is more than most readers do with it.
"""

import asyncio
import contextlib
import json
from collections.abc import Callable

from nats.aio.client import Client
from nats.aio.msg import Msg

from gyre.bus.hearing import hear
from gyre.errors import Unavailable

EXPIRES_S = 5.0
"""Life of one pull request at the server: bounds how long a lost request goes unnoticed."""
GRACE_S = 2.0
"""Added to EXPIRES_S before silence counts as a lost consumer."""

RECONNECT_CHECK_S = 0.5
"""How often a silent reader looks whether the connection was made anew, which loses the request (and mostly the consumer)."""

REQUEST_BYTES = 64 * 1024 * 1024
"""What one request may bring: half of what the client holds for a reader before it throws messages away, and many of the largest messages."""

_RENEW = {"404", "408"}
"""No messages; request expired: ask again."""
_FULL = "Message Size Exceeds MaxBytes"
"""The next message does not fit into what is left of REQUEST_BYTES: ask again too."""
_USED_UP = "Batch Completed"
"""Said after the last message of a request that names its bytes. We have counted, and may have asked again before it comes."""

TURN = 16
"""Messages that are taken before others on the event loop have their turn, however many lie there."""


class Pull:
    """The messages of one consumer."""

    def __init__(self, client: Client, stream: str, consumer: str, batch: int) -> None:
        self._client = client
        self._subject = f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}"
        self._batch = batch
        self._left = 0
        self._asked_until_s = 0.0
        self._subscription = None
        self._came: asyncio.Queue[Msg] = asyncio.Queue()
        """At most what was asked for."""
        self._taken = 0
        self._inbox = ""
        self._connection = self._reconnects()

    async def open(self) -> None:
        self._inbox = self._client.new_inbox()
        self._subscription = await hear(self._client, self._inbox, self._came.put_nowait)

    async def close(self) -> None:
        if self._subscription is not None and not self._client.is_closed:
            await self._subscription.unsubscribe()
            self._subscription = None

    async def next(self, wait_s: float | None = None) -> Msg | None:
        """The next message; None when `wait_s` passes without one. Raises Unavailable when the consumer is gone."""
        loop = asyncio.get_running_loop()
        deadline_s = None if wait_s is None else loop.time() + wait_s
        while True:
            await self._ask(loop.time)
            message = await self._take(deadline_s)
            if message is None:
                if self._client.is_closed or self._reconnects() != self._connection:
                    raise Unavailable(f"{self._subject}: the connection was made anew") from None
                if loop.time() >= self._asked_until_s + GRACE_S:
                    raise Unavailable(f"no answer from {self._subject} for {EXPIRES_S + GRACE_S:g} s") from None
                if deadline_s is not None and loop.time() >= deadline_s:
                    return None
                continue
            status = (message.headers or {}).get("Status") if not message.data else None
            if status is None:
                self._left -= 1
                return message
            description = (message.headers or {}).get("Description", "")
            if description == _USED_UP:
                continue
            self._left = 0
            if status not in _RENEW and description != _FULL:
                raise Unavailable(f"{self._subject}: {status} {description}")

    async def _take(self, deadline_s: float | None) -> Msg | None:
        """The next that came; None when a look at the connection is due, or at the deadline (loop's time)."""
        self._taken += 1
        if self._taken % TURN == 0:
            await asyncio.sleep(0)
        if self._came.empty():
            wait_s = RECONNECT_CHECK_S if deadline_s is None else deadline_s - asyncio.get_running_loop().time()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(max(wait_s, 0.001), RECONNECT_CHECK_S)):
                    return await self._came.get()
            return None
        return self._came.get_nowait()

    def _reconnects(self) -> int:
        return self._client.stats["reconnects"]

    async def _ask(self, time_s: Callable[[], float]) -> None:
        if self._left > 0 and time_s() < self._asked_until_s + GRACE_S:
            return
        self._left = self._batch
        self._asked_until_s = time_s() + EXPIRES_S
        request = {"batch": self._batch, "expires": int(EXPIRES_S * 1e9)}
        if self._batch > 1:
            request["max_bytes"] = REQUEST_BYTES
        await self._client.publish(self._subject, json.dumps(request).encode(), reply=self._inbox)

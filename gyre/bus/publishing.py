"""Messages for JetStream, each with the server's answer that it is stored.

nats-py's `request` waits for its flusher to have a turn of the loop, and for an answer by a task and a timer of their own. Who waits for a reply of
the gateway waits for all of that, so here a message leaves as it is given, and its answer wakes who waits.
"""

import asyncio
import itertools
import json

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.transport import TcpTransport
from nats.errors import NoRespondersError
from nats.errors import TimeoutError as NotAnswered
from nats.js.errors import APIError

from gyre.bus.hearing import hear


class Publishing:
    """What one connection gives to JetStream."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._inbox = ""
        self._opening = asyncio.Lock()
        self._serial = itertools.count()
        self._asked: dict[str, asyncio.Future[int]] = {}

    async def give(self, subject: str, data: bytes, headers: dict[str, str], timeout_s: float) -> asyncio.Future[int]:
        """It has left when this returns, where there is a connection; what is answered has the message's sequence, or raises.

        Raises nats.errors.Error: closed, nothing more to be held for a server that is away. The answer raises the server's APIError,
        NoRespondersError (no stream takes this), TimeoutError after `timeout_s`; the message may be stored all the same."""
        await self._open()
        loop, name = asyncio.get_running_loop(), str(next(self._serial))
        answer: asyncio.Future[int] = loop.create_future()
        timer = loop.call_later(timeout_s, _late, answer)
        self._asked[name] = answer
        answer.add_done_callback(lambda _: (timer.cancel(), self._asked.pop(name, None)))
        try:
            await self._client.publish(subject, data, reply=self._inbox + name, headers=headers)
        except BaseException:
            answer.cancel()
            raise
        self._leave()
        return answer

    def _leave(self) -> None:
        """Now, and not when the client's flusher has its turn, which finds nothing more. Behind what the server has not taken yet it is left to
        the flusher, which waits: the transport's buffer has no end."""
        client, transport = self._client, self._client._transport
        if not client.is_connected or not client._pending or not isinstance(transport, TcpTransport):
            return
        writer = transport._io_writer
        if writer is not None and not writer.transport.get_write_buffer_size():
            transport.writelines(client._pending)
            client._pending, client._pending_data_size = [], 0

    async def _open(self) -> None:
        if self._inbox:
            return
        async with self._opening:
            if not self._inbox:
                inbox = f"{self._client.new_inbox()}."
                await hear(self._client, f"{inbox}*", self._come)
                self._inbox = inbox

    def _come(self, message: Msg) -> None:
        answer = self._asked.get(message.subject[len(self._inbox) :])
        if answer is None or answer.done():
            return
        try:
            answer.set_result(_sequence(message))
        except Exception as error:
            answer.set_exception(error)


def _sequence(message: Msg) -> int:
    """Of what this answers. Raises APIError, NoRespondersError."""
    if not message.data:
        raise NoRespondersError
    said = json.loads(message.data)
    if "error" in said:
        APIError.from_error(said["error"])  # raises it
    return said["seq"]


def _late(answer: asyncio.Future[int]) -> None:
    if not answer.done():
        answer.set_exception(NotAnswered())

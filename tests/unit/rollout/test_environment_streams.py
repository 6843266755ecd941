"""Streams of environments: who is silent."""

import asyncio

from gyre.api.rollout.v1 import environments_pb2 as pb
from services.rollout.gateway.environments import Environments, Stream
from tests.support import until


class BusIsAway:
    """A double of leasing whose facts cannot be stored until `back` is set."""

    def __init__(self) -> None:
        self.back = asyncio.Event()
        self.signs = 0

    def heard(self, _instance: str) -> bool:
        self.signs += 1
        return True

    async def started(self, _instance: str, _message: pb.AttachRequest) -> bool:
        await self.back.wait()
        return True


async def test_an_environment_whose_words_wait_for_the_bus_is_not_taken_to_be_lost():
    """C2: heartbeats behind a Started that cannot be stored yet are unread; the stream stands, so nothing is given out again."""
    listener, streams = BusIsAway(), Environments()
    streams.listener = listener

    async def said():
        yield pb.AttachRequest(request_id="1", execution_id="g000001-e0", attempt=1, started=pb.Started())
        yield pb.AttachRequest(heartbeat=pb.Heartbeat())

    reading = asyncio.create_task(streams._read(said(), "instance", Stream()))
    await until(lambda: listener.signs >= 3)  # one for the message, and one each quarter of a second since
    assert not reading.done()
    listener.back.set()
    await asyncio.wait_for(reading, 60)

"""Connections are counted for each execution, and those of nobody yet are few and short: no sandbox keeps another's calls out (C6)."""

import asyncio
import contextlib
from base64 import b64encode

from gyre.env.outside import Outside, Rules
from tests.support import until
from tests.unit.env.test_outside import Far, ask, gateway, journal

FEW = Rules(hosts=("127.0.0.1",), connections_max=4, unknown_max=4, unknown_s=600.0)


@contextlib.asynccontextmanager
async def opened(made, count: int, say: bytes = b""):
    """So many connections that have said this, and are read no further."""
    lines = []
    try:
        for _ in range(count):
            lines.append(await asyncio.open_connection("127.0.0.1", made.port))
            lines[-1][1].write(say)
        yield [reader for reader, _ in lines]
    finally:
        for _, writer in lines:
            writer.close()


def usage_of(way) -> bytes:
    """A request of the gateway itself, after which the connection stays open."""
    key = b64encode(f"{way.name}:{way.token}".encode()).decode()
    return f"GET /usage HTTP/1.1\r\nhost: x\r\nauthorization: Basic {key}\r\n\r\n".encode()


async def test_an_execution_that_holds_all_its_connections_keeps_nobody_else_out():
    """It is told so itself, and may go on when it has closed one."""
    async with Far() as far, gateway(Outside(rules=FEW)) as made:
        first, second = journal(), journal()
        mine, other = made.admit("e0-a1", lambda: first), made.admit("e1-a1", lambda: second)
        async with opened(made, 4, usage_of(mine)) as readers:
            for reader in readers:
                assert (await reader.readline()).startswith(b"HTTP/1.1 200")
            status, body, _ = await ask(mine, f"{far.base}/a")
            assert status == 503 and b"4 connections of this execution" in body
            assert (await ask(other, f"{far.base}/b"))[0] == 200
        await until(lambda: made._admitted["e0-a1"].connections == 0)
        assert (await ask(mine, f"{far.base}/a"))[0] == 200


async def test_connections_that_say_nothing_keep_nobody_out():
    """A hundred of them: the oldest are closed, and whoever says who it is is answered."""
    async with Far() as far, gateway(Outside(rules=FEW)) as made:
        mine = journal()
        way = made.admit("e0-a1", lambda: mine)
        async with opened(made, 100) as readers:
            assert await readers[0].read() == b""
            await until(lambda: len(made._connections) <= 4)
            assert (await ask(way, f"{far.base}/a"))[0] == 200


async def test_a_connection_has_little_time_to_say_whose_it_is():
    """All of its first request: a byte now and then does not prolong it. One that is known may be silent for longer."""
    rules = Rules(hosts=("127.0.0.1",), unknown_s=1.0)
    async with gateway(Outside(rules=rules)) as made:
        mine = journal()
        way = made.admit("e0-a1", lambda: mine)
        async with opened(made, 1, usage_of(way)) as known, opened(made, 1, b"GET / HTTP/1.1\r\n") as slow:
            assert (await known[0].readline()).startswith(b"HTTP/1.1 200")
            assert await slow[0].read() == b""
            assert made._admitted["e0-a1"].connections == 1


async def test_wrong_keys_do_not_make_a_connection_known():
    async with gateway(Outside(rules=FEW)) as made:
        async with opened(made, 3, b"GET /usage HTTP/1.1\r\nhost: x\r\n\r\n") as readers:
            for reader in readers:
                assert (await reader.readline()).startswith(b"HTTP/1.1 407")
            assert len(made._unknown) == 3

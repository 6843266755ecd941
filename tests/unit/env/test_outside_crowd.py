"""Connections are counted for each execution, and those of nobody yet are few and short: no sandbox keeps another's calls out (C6)."""

import asyncio
import contextlib
import socket
from base64 import b64encode
from functools import cache

from gyre.env.outside import Outside, Rules
from tests.support import WAIT_S, until
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


async def test_many_that_come_at_once_are_all_read_before_any_is_taken_for_silent():
    """Ninety in one pass of the loop, each with its request: every one is answered."""
    rules = Rules(hosts=("127.0.0.1",), connections_max=100, unknown_max=4)
    async with gateway(Outside(rules=rules)) as made:
        mine = journal()
        said = usage_of(made.admit("e0-a1", lambda: mine))
        with contextlib.ExitStack() as stack:
            lines = [stack.enter_context(socket.create_connection(("127.0.0.1", made.port))) for _ in range(90)]
            for line in lines:  # none is accepted before we wait for anything
                line.sendall(said)
            loop = asyncio.get_running_loop()
            for line in lines:
                line.setblocking(False)
                assert (await loop.sock_recv(line, 100)).startswith(b"HTTP/1.1 200")


async def test_connections_that_are_slow_to_say_who_they_are_are_bounded_too(monkeypatch):
    """None is silent, and all are new."""
    monkeypatch.setattr("gyre.env.outside.gateway.CROWD_MAX", 6)
    async with gateway(Outside(rules=FEW)) as made:
        async with opened(made, 6, b"GET") as readers:
            await until(lambda: sum(line.has_spoken for line in made._unknown.values()) == 6)
            async with opened(made, 3, b"GET"):
                for reader in readers[:3]:
                    assert await reader.read() == b""
                await until(lambda: len(made._connections) == len(made._unknown) == 6)


async def test_connections_that_say_nothing_keep_nobody_out(monkeypatch, caplog):
    """A hundred of them: the oldest are closed, which is logged, and whoever says who it is is answered."""
    monkeypatch.setattr("gyre.env.outside.gateway.SILENT_S", 0.05)
    async with Far() as far, gateway(Outside(rules=FEW)) as made:
        mine = journal()
        way = made.admit("e0-a1", lambda: mine)
        async with opened(made, 100) as readers:
            assert await readers[0].read() == b""
            await until(lambda: len(made._connections) <= 4)
            assert (await ask(way, f"{far.base}/a"))[0] == 200
        assert "had not said whose they are were closed; there are" in caplog.text


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


async def test_wrong_keys_give_a_connection_no_more_time():
    async with gateway(Outside(rules=Rules(hosts=("127.0.0.1",), unknown_s=1.0))) as made:
        reader, writer = await asyncio.open_connection("127.0.0.1", made.port)
        async with asyncio.timeout(WAIT_S):
            with contextlib.suppress(ConnectionError):
                writer.write(b"GET /usage HTTP/1.1\r\nhost: x\r\n\r\n")
                while await reader.read(1000):
                    await asyncio.sleep(0.1)
                    writer.write(b"GET /usage HTTP/1.1\r\nhost: x\r\n\r\n")
        assert not made._unknown
        writer.close()


async def test_wrong_keys_do_not_make_a_connection_known():
    async with gateway(Outside(rules=FEW)) as made:
        async with opened(made, 3, b"GET /usage HTTP/1.1\r\nhost: x\r\n\r\n") as readers:
            for reader in readers:
                assert (await reader.readline()).startswith(b"HTTP/1.1 407")
            assert len(made._unknown) == 3


async def test_who_is_nobody_is_told_so_before_a_body_is_read():
    """Of four MiB that are announced nothing has come: whoever waited for them could be made to hold as much for each connection."""
    heads = (b"POST http://127.0.0.1:1/a", b"POST /mcp/x", b"PUT /usage")
    for more in (b"content-length: 4194304", b"transfer-encoding: chunked"):
        async with gateway(Outside(rules=FEW)) as made:
            for head in heads:
                async with opened(made, 1, head + b" HTTP/1.1\r\nhost: x\r\n" + more + b"\r\n\r\n") as (reader,):
                    async with asyncio.timeout(WAIT_S):
                        assert (await reader.readline()).startswith(b"HTTP/1.1 407")


async def test_one_that_has_no_body_may_say_who_it_is_on_the_same_connection():
    async with gateway(Outside(rules=FEW)) as made:
        mine = journal()
        way = made.admit("e0-a1", lambda: mine)
        first = b"POST /usage HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n"
        async with opened(made, 1, first + usage_of(way)) as (reader,), asyncio.timeout(WAIT_S):
            seen = await reader.readuntil(b"quota_left")
        assert seen.startswith(b"HTTP/1.1 407") and b"HTTP/1.1 200" in seen


async def test_executions_that_wait_for_a_host_that_never_answers_hold_up_no_other():
    """A hundred and more of them: each has one call under way."""
    async with Far() as far, gateway(Outside(rules=Rules(hosts=("127.0.0.1",), unknown_max=200))) as made:
        ways = [made.admit(f"e{number}-a1", cache(lambda: journal())) for number in range(106)]
        waiting = [asyncio.create_task(ask(way, f"{far.base}/never")) for way in ways[1:]]
        await until(lambda: far.asked.count("GET /never") == 105)
        assert (await ask(ways[0], f"{far.base}/a"))[0] == 200
        far.release.set()
        assert {status for status, _, _ in await asyncio.gather(*waiting)} == {200}

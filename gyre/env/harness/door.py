"""The only way out of a container without a network: sockets that listen on its loopback, made there (hook.py) and served here.

    command ──127.0.0.1:PORT of the container──▶ listener ──▶ this process ──127.0.0.1:PORT of this machine──▶ relay, tool gateway

Only the ports that were named are there, and each leads to the same port of this machine's loopback.
"""

import asyncio
import functools
import logging
import socket
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

from gyre.errors import InvalidInput
from gyre.tasks import end

log = logging.getLogger(__name__)

CONNECTIONS_MAX = 512
"""At once, of one container; the relay itself takes 256. Further ones are closed."""
PIECE_BYTES = 64 * 1024
HOOK_S = 10.0
LOOPBACK = ("127.0.0.1", "localhost")


def ports_of(urls: Sequence[str]) -> list[int]:
    """The ports behind `urls`. Raises InvalidInput for what is not on this machine's loopback."""
    ports = list[int]()
    for url in urls:
        parts = urlsplit(url)
        if parts.hostname not in LOOPBACK:
            raise InvalidInput(f"a container reaches 127.0.0.1 of this machine, by its relay, and not {parts.hostname}")
        port = parts.port or {"https": 443}.get(parts.scheme, 80)
        if port not in ports:
            ports.append(port)
    return ports


class Door:
    """`await open()` before the container is made, `await close()` when it has ended."""

    def __init__(self, place: Path, ports: Sequence[int]) -> None:
        """`place`: of the socket by which listeners come, in a folder of our own."""
        self._place, self._ports = place, ports
        self._servers: list[asyncio.Server] = []
        self._open = 0
        self._taking: asyncio.Task | None = None

    async def open(self) -> None:
        """Raises OSError, also where the path of `place` is too long for a socket."""
        channel = socket.socket(socket.AF_UNIX)
        channel.setblocking(False)
        channel.bind(str(self._place))
        channel.listen(1)
        self._taking = asyncio.create_task(self._take(channel))

    async def close(self) -> None:
        if self._taking is not None:
            await end(self._taking)
        for server in self._servers:
            server.close()

    async def _take(self, channel: socket.socket) -> None:
        with channel:
            hook, _ = await asyncio.get_running_loop().sock_accept(channel)
        with hook:
            hook.settimeout(HOOK_S)
            _, descriptors, _, _ = await asyncio.to_thread(socket.recv_fds, hook, 1, len(self._ports))
        for descriptor, port in zip(descriptors, self._ports, strict=True):
            listener = socket.socket(fileno=descriptor)
            listener.setblocking(False)
            serve = functools.partial(self._serve, port)
            self._servers.append(await asyncio.start_server(serve, sock=listener))

    async def _serve(self, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, until one side breaks off or both have said all."""
        self._open += 1
        ends = [writer]
        try:
            if self._open <= CONNECTIONS_MAX:
                far_reader, far_writer = await asyncio.open_connection(LOOPBACK[0], port)
                ends.append(far_writer)
                async with asyncio.TaskGroup() as both:
                    both.create_task(_carry(reader, far_writer))
                    both.create_task(_carry(far_reader, writer))
        except* OSError as group:
            log.debug("a connection to port %s: %s", port, group.exceptions)
        finally:
            self._open -= 1
            for one in ends:
                one.close()


async def _carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while piece := await reader.read(PIECE_BYTES):
        writer.write(piece)
        await writer.drain()
    writer.write_eof()

"""A connection for storing facts and nothing else: NATS' protocol without the queues and tasks of a general client.

    store ── HPUB subject inbox.7 … ──▶ server ── MSG inbox.7 {"stream": …, "seq": 12} ──▶ whoever waits for 7

It promises less than the general client, which stands behind it (client.Bus): what is not acknowledged in time, or when the connection breaks, is
Unavailable; it is then sent there, under the same natural key, and so is stored once.
Protocol: docs.nats.io/reference/reference-protocols/nats-protocol.
"""

import asyncio
import base64
import itertools
import json
import logging
import secrets
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import nkeys
from nats.js.errors import APIError

from gyre.errors import Unavailable

log = logging.getLogger(__name__)

OPEN_TIMEOUT_S = 5.0
_NEWLINES = str.maketrans("\r\n", "  ")


class Quick(asyncio.Protocol):
    """One connection, which is opened once: who wants another makes another."""

    def __init__(self, url: str, name: str, seed_file: Path | None, timeout_s: float) -> None:
        """`timeout_s`: how long an acknowledgement is waited for."""
        self._url, self._name, self._seed_file, self._timeout_s = urlsplit(url), name, seed_file, timeout_s
        self._inbox = f"_INBOX.{secrets.token_hex(11)}."
        self._serial = itertools.count()
        self._waiting: dict[bytes, asyncio.Future[bytes]] = {}
        self._got = bytearray()
        self._transport: asyncio.Transport | None = None
        self._opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.closed = asyncio.Event()

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing() and self._opened.done()

    async def open(self) -> None:
        """Raises Unavailable."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(OPEN_TIMEOUT_S):
                await loop.create_connection(lambda: self, self._url.hostname, self._url.port)
                await asyncio.shield(self._opened)
        except (OSError, TimeoutError) as error:
            self.close()
            raise Unavailable(f"cannot reach the bus at {self._url.geturl()}: {error}") from error

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    async def store(self, subject: str, data: bytes, headers: dict[str, str]) -> int:
        """Its sequence. Raises APIError for JetStream's refusals, Unavailable where nobody knows whether it is stored."""
        if not self.is_open or self._transport is None:
            raise Unavailable("the connection is closed")
        lines = "".join(f"{name}: {value.strip().translate(_NEWLINES)}\r\n" for name, value in headers.items())
        head = f"NATS/1.0\r\n{lines}\r\n".encode()
        inbox = f"{self._inbox}{next(self._serial)}".encode()
        answer = self._waiting[inbox] = asyncio.get_running_loop().create_future()
        timer = asyncio.get_running_loop().call_later(self._timeout_s, self._late, answer)
        try:
            self._transport.write(
                b"HPUB %b %b %d %d\r\n%b%b\r\n"
                % (subject.encode(), inbox, len(head), len(head) + len(data), head, data)
            )
            said = json.loads(await answer)
        finally:
            timer.cancel()
            self._waiting.pop(inbox, None)
        if "error" in said:
            raise APIError.from_error(said["error"])
        return said["seq"]

    def _late(self, answer: asyncio.Future[bytes]) -> None:
        if not answer.done():
            answer.set_exception(Unavailable(f"no acknowledgement in {self._timeout_s:g} s"))
            self.close()

    # -- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed.set()
        error = Unavailable(f"the connection to the bus broke: {exc}")
        for answer in [self._opened, *self._waiting.values()]:
            if not answer.done():
                answer.set_exception(error)
        self._opened.exception()  # seen; who opens it may have given up

    def data_received(self, data: bytes) -> None:
        self._got += data
        at = 0
        while (end := self._got.find(b"\r\n", at)) >= 0:
            words = bytes(self._got[at:end]).split(b" ")
            if words[0] in (b"MSG", b"HMSG"):
                begin, size = end + 2, int(words[-1])
                if len(self._got) < begin + size + 2:
                    break
                self._message(words, bytes(self._got[begin : begin + size]))
                at = begin + size + 2
            else:
                self._word(words[0], bytes(self._got[at:end]))
                at = end + 2
        del self._got[:at]

    def _message(self, words: list[bytes], data: bytes) -> None:
        answer = self._waiting.get(words[1])
        if answer is None or answer.done():
            return
        if words[0] == b"HMSG":  # the server's own word that nobody listens: no stream takes this subject
            answer.set_exception(Unavailable(data.decode(errors="replace").strip()))
        else:
            answer.set_result(data)

    def _word(self, word: bytes, line: bytes) -> None:
        assert self._transport is not None
        if word == b"INFO" and not self._opened.done():
            self._transport.write(self._introduction(json.loads(line[5:])))
        elif word == b"PING":
            self._transport.write(b"PONG\r\n")
        elif word == b"PONG" and not self._opened.done():
            self._opened.set_result(None)
        elif word == b"-ERR":
            log.warning("bus: %s", line.decode(errors="replace"))
            self._transport.close()

    def _introduction(self, info: dict[str, Any]) -> bytes:
        """Who we are, where answers go, and a question whose answer says that all of it was taken."""
        options: dict[str, Any] = {
            "verbose": False, "pedantic": False, "lang": "python", "version": "1", "protocol": 1, "name": self._name, "headers": True,
            "no_responders": True,
        }  # fmt: skip
        if self._seed_file is not None and "nonce" in info:
            key = nkeys.from_seed(bytearray(self._seed_file.read_bytes().strip()))
            options["nkey"] = key.public_key.decode()
            options["sig"] = base64.b64encode(key.sign(info["nonce"].encode())).decode()
            key.wipe()
        return f"CONNECT {json.dumps(options)}\r\nSUB {self._inbox}* 1\r\nPING\r\n".encode()

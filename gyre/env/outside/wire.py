"""One client's connection to the tool gateway: HTTP/1.1 requests in, replies out, bounded in size and time (h11 over asyncio streams)."""

import asyncio
import base64
import contextlib
import re
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import h11

from gyre.errors import InvalidInput

HEAD_BYTES_MAX = 64 * 1024
CHUNK_BYTES = 64 * 1024
LINGER_S = 5.0
_NO_VALUE = re.compile(rb"[\x00\n\v\f\r]")


@dataclass(frozen=True, slots=True)
class Request:
    method: str
    target: str
    """As sent: an absolute URL at a proxy, a path at an ordinary server, host:port for CONNECT."""
    headers: list[tuple[str, str]]
    """Names in lower case; each byte a character, as in Reply."""
    body: bytes = b""

    def header(self, name: str) -> str:
        return next((value for key, value in self.headers if key == name), "")

    def credentials(self, name: str) -> tuple[str, str]:
        """(user, password) of Basic credentials in this header, ("", token) of a Bearer's; empty where there are none."""
        kind, _, said = self.header(name).partition(" ")
        if kind.lower() == "bearer":
            return "", said.strip()
        try:
            user, _, password = base64.b64decode(said, validate=True).decode().partition(":")
            return user, password
        except ValueError:
            return "", ""


@dataclass(frozen=True, slots=True)
class Reply:
    status: int
    body: bytes = b""
    headers: list[tuple[str, str]] = field(default_factory=list)


def text_of(value: bytes) -> str:
    """A header's bytes as the texts here hold them: each a character."""
    return value.decode("latin-1")


def _value(text: str) -> bytes:
    """The bytes again; of what no header may hold, spaces."""
    try:
        value = text.encode("latin-1")
    except UnicodeEncodeError:  # a text of our own
        value = text.encode(errors="replace")
    return _NO_VALUE.sub(b" ", value).strip()


def refusal(status: int, code: str, text: str, *headers: tuple[str, str]) -> Reply:
    """A reply of the gateway's own: words, and a code that tells it from the far end's."""
    said = [("content-type", "text/plain; charset=utf-8"), ("x-gyre-error", code), *headers]
    return Reply(status, f"{text}\n".encode(errors="replace"), said)


class TooLarge(InvalidInput):
    """A request's body is over the bound."""


class NotAdmitted(InvalidInput):
    """Who asks is nobody, and has more to say than a head."""


class Connection:
    """`next` a request, `send` its reply, and so on; either side may close."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, bytes_max: int, idle_s: float
    ) -> None:
        self.reader, self.writer = reader, writer
        self.opened_s = time.monotonic()
        self.has_spoken = False
        """Anything at all was read of it."""
        self._bytes_max, self._idle_s = bytes_max, idle_s
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_BYTES_MAX)
        self._method = ""

    async def next(self, admits: Callable[[Request], bool] = lambda head: True) -> Request | None:
        """None: the client is gone or silent. `admits` is asked about a head whose body is still to come: nothing of it is read for nobody.
        Raises h11.RemoteProtocolError, TooLarge, NotAdmitted."""
        if self._http.our_state is h11.DONE and self._http.their_state is h11.DONE:
            self._http.start_next_cycle()
        if self._http.our_state is not h11.IDLE:
            return None
        head: h11.Request | None = None
        body = bytearray()
        while True:
            event = await self._event()
            if event is None:
                return None
            if isinstance(event, h11.Request):
                head = event
                self._method = head.method.decode()
                if head.method == b"CONNECT":
                    break
                if _has_body(head) and not admits(_request(head)):
                    raise NotAdmitted("a body, and nobody's")
                if self._http.they_are_waiting_for_100_continue:
                    self.writer.write(self._http.send(h11.InformationalResponse(status_code=100, headers=[])))
            elif isinstance(event, h11.Data):
                body += event.data
                if len(body) > self._bytes_max:
                    raise TooLarge(f"the request has more than {self._bytes_max} bytes")
            elif isinstance(event, h11.EndOfMessage):
                break
        return _request(head, bytes(body))

    async def send(self, reply: Reply) -> None:
        """With its length; what the client must not see of the reply's framing is ours to say."""
        said = next((value for key, value in reply.headers if key.lower() == "content-length"), "")
        headers = [(key, _value(value)) for key, value in reply.headers if key.lower() != "content-length"]
        if (
            self._method == "HEAD" and not reply.body
        ):  # the length that another request would be answered with, where it is known
            headers += [("content-length", said)] if said.isdecimal() else []
        elif reply.status >= 200 and reply.status not in (204, 304):
            headers.append(("content-length", str(len(reply.body))))
        data = self._http.send(h11.Response(status_code=reply.status, headers=headers, reason=b""))
        if self._method != "HEAD" and reply.status not in (204, 304) and reply.body:
            data += self._http.send(h11.Data(data=reply.body))
        self.writer.write(data + (self._http.send(h11.EndOfMessage()) or b""))
        await self.writer.drain()

    async def connected(self) -> None:
        """CONNECT is granted: what follows on this connection is no longer this HTTP."""
        self.writer.write(self._http.send(h11.Response(status_code=200, headers=[], reason=b"Connection established")))
        await self.writer.drain()

    async def encrypted(self, context: ssl.SSLContext) -> None:
        """The client speaks TLS from here on, and HTTP inside it, with us as the far end."""
        await self.writer.start_tls(context)
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_BYTES_MAX)

    async def linger(self) -> None:
        """Read on for a while: a connection that is closed with something unread is reset, and the client never sees the reply."""
        with contextlib.suppress(
            TimeoutError, OSError, RuntimeError, NotImplementedError
        ):  # TLS has no half of a connection
            self.writer.write_eof()
            async with asyncio.timeout(LINGER_S):
                while await self.reader.read(CHUNK_BYTES):
                    pass

    async def _event(self):
        while (event := self._http.next_event()) is h11.NEED_DATA:
            try:
                async with asyncio.timeout(self._idle_s):
                    data = await self.reader.read(CHUNK_BYTES)
            except (TimeoutError, OSError):
                return None
            self.has_spoken = True
            self._http.receive_data(data)
        return None if isinstance(event, h11.ConnectionClosed) or event is h11.PAUSED else event


def _request(head: h11.Request, body: bytes = b"") -> Request:
    headers = [(text_of(key), text_of(value)) for key, value in head.headers]
    return Request(head.method.decode(), text_of(head.target), headers, body)


def _has_body(head: h11.Request) -> bool:
    return any(key == b"transfer-encoding" or (key == b"content-length" and int(value)) for key, value in head.headers)

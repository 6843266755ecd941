"""The HTTP form of the tool gateway: a forward proxy. Plain requests and, with a certificate authority, https are recorded with what was said.

client ── GET http://far/… ──▶ Gate ──▶ far end
client ── CONNECT far:443 ──▶ intercepted: TLS ends here, each request inside goes through the Gate
                           └▶ tunnelled: only that it was opened is on record, so it cannot be repeated
"""

import asyncio
import contextlib
import json
import logging
import re
import ssl
import zlib
from fnmatch import fnmatch
from typing import Any
from urllib.parse import quote

import aiohttp
import msgspec
from yarl import URL

from gyre.env.outside.gate import CALL_S, Gate, QuotaUsedUp
from gyre.env.outside.reach import HostRefused, Reach
from gyre.env.outside.wire import CHUNK_BYTES, Connection, Reply, Request, refusal, text_of
from gyre.env.recording import Departed
from gyre.errors import InvalidInput
from gyre.tasks import end

log = logging.getLogger(__name__)

HOP_BY_HOP = {
    "connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade",
    "content-encoding", "content-length", "host", "accept-encoding", "expect",
}  # fmt: skip
"""Between two neighbours only. Contents are recorded uncompressed, so that rules for secrets see them."""
_CHARSET = re.compile(r"(?i)charset=[\"']?([\w.:-]{1,40})")
_WRITTEN = "".join(map(chr, range(0x21, 0x7F)))
"""Characters of an address that go out as they are."""
RECORDED_HEADERS = ("content-type", "accept")
"""Of a request: what a replay compares. Others say who asks and when (user-agent, dates, traces), and differ each time."""


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """What may go out, and how much."""

    hosts: tuple[str, ...] = ("*",)
    """Hosts that may be reached: patterns (`*.example.com`), which open what is public, and names, addresses or networks (`127.0.0.1`,
    `10.0.0.0/8`), which also open what is of this machine or its network (reach.py)."""
    tunnelled: tuple[str, ...] = ()
    """Patterns of https hosts that are never intercepted: whose clients trust nobody but them."""
    bytes_max: int = 4 * 2**20
    """Of a request and of a reply."""
    tunnel_bytes_max: int = 256 * 2**20
    call_s: float = CALL_S
    idle_s: float = 60.0
    """A connection on which nothing is asked for so long is closed."""
    connections_max: int = 64
    """Of one execution at once."""
    unknown_max: int = 64
    """Connections that have not said whose they are; where there are more the oldest that say nothing are closed (gateway.py)."""
    unknown_s: float = 15.0
    """How long a connection has to say whose it is."""


class Proxy:
    """Serves connections whose client has said who it is."""

    def __init__(self, rules: Rules, certificates: Any, far_ssl: ssl.SSLContext | bool = True) -> None:
        """`certificates` (Certificates) for https that is read along, or None: https is tunnelled. `far_ssl`: whom we trust at the far end."""
        self._rules, self._certificates, self._far_ssl = rules, certificates, far_ssl
        self._reach = Reach(rules.hosts)
        self._http: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        if self._http is not None:
            await self._http.close()

    async def answer(self, gate: Gate, request: Request, base: str = "") -> Reply:
        """A request for the far end; `base`: where an intercepted one goes."""
        url = base + request.target
        try:
            request = unpacked_request(request, self._rules.bytes_max)
        except InvalidInput as error:
            return refusal(415, "invalid_input", str(error))
        try:
            far = URL(url)
            host = far.raw_host or ""  # as it is looked up: other dots and digits have become plain ones
            if far.scheme not in ("http", "https") or not host or far.port == 0:
                raise ValueError("it has no host")
            far = as_written(url, far)
        except ValueError as error:
            return refusal(
                400, "invalid_input", f"a proxy needs an absolute URL (http://host/…), not {url[:200]!r}: {error}"
            )
        if why := self._reach.why_not(host):
            return refusal(403, "host_refused", why)
        arguments = {"method": request.method, "url": url, **_packed(request.body, request.header("content-type"))}
        arguments |= {name: request.header(name) for name in RECORDED_HEADERS if request.header(name)}
        try:
            answer = await gate.call(f"http {host}", arguments, lambda: self._exchange(request, far), _failed)
        except QuotaUsedUp as error:
            return refusal(429, error.code, str(error))
        except Departed as error:
            return refusal(502, error.code, str(error))
        return _unpacked(json.loads(answer.content))

    async def connect(self, gate: Gate, request: Request, connection: Connection) -> str | None:
        """CONNECT: the base URL of the requests that follow inside, or None when the connection is over."""
        host, _, port = request.target.rpartition(":")
        host = host.strip("[]")
        if not host or not port.isdigit():
            await connection.send(
                refusal(400, "invalid_input", f"CONNECT needs host:port, not {request.target[:200]!r}")
            )
        elif why := self._reach.why_not(host):
            await connection.send(refusal(403, "host_refused", why))
        elif self._certificates is None or any(fnmatch(host, pattern) for pattern in self._rules.tunnelled):
            await self._tunnel(gate, host, int(port), connection)
        else:
            await connection.connected()
            await connection.encrypted(self._certificates.context(host))
            shown = f"[{host}]" if ":" in host else host
            return f"https://{shown}" + ("" if port == "443" else f":{port}")
        return None

    async def _exchange(self, request: Request, far: URL) -> tuple[str, bool]:
        """(the reply as it goes on record, whether there was none)."""
        if self._http is None:
            self._http = aiohttp.ClientSession(
                # one call of each execution is under way: those that wait for a slow host are no concern of the others
                connector=aiohttp.TCPConnector(limit=0, ssl=self._far_ssl, resolver=self._reach),
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        named = {name.strip().lower() for name in request.header("connection").split(",")}
        headers = [(name, _characters(value)) for name, value in request.headers if name not in HOP_BY_HOP | named]
        try:
            async with self._http.request(
                request.method, far, headers=headers, data=request.body or None, allow_redirects=False,
                skip_auto_headers=("User-Agent", "Content-Type", "Accept"), timeout=aiohttp.ClientTimeout(total=self._rules.call_s),
            ) as reply:  # fmt: skip
                body = bytearray()
                async for chunk in reply.content.iter_chunked(CHUNK_BYTES):
                    body += chunk
                    if len(body) > self._rules.bytes_max:
                        return _failed(f"the reply has more than {self._rules.bytes_max} bytes"), True
                if reply.status < 200:
                    return _failed(f"it answered {reply.status}: no other protocol is spoken here"), True
                kept = (
                    {"content-length"}
                    if request.method == "HEAD" and "content-encoding" not in reply.headers
                    else set()
                )
                said: dict[str, Any] = {}
                for name, value in reply.raw_headers:
                    if (key := text_of(name).lower()) not in HOP_BY_HOP - kept:
                        said.setdefault(key, []).append(text_of(value))
                return json.dumps(
                    {
                        "status": reply.status,
                        "headers": said,
                        **_packed(bytes(body), reply.headers.get("content-type", "")),
                    }
                ), False
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            if isinstance(why := getattr(error, "os_error", error), HostRefused):
                return _refused(str(why)), True
            return _failed(f"{str(far).split('?')[0][:300]} cannot be reached: {error or type(error).__name__}"), True

    async def _tunnel(self, gate: Gate, host: str, port: int, connection: Connection) -> None:
        far: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

        async def open_it() -> tuple[str, bool]:
            try:
                far.append(await self._connected(host, port))
            except HostRefused as error:
                return _refused(str(error)), True
            except OSError as error:
                return _failed(f"{host}:{port} cannot be reached: {error}"), True
            return json.dumps({"status": 200, "headers": {}, "body": "opaque"}), False

        try:
            answer = await gate.call("http tunnel", {"host": host, "port": port}, open_it, _failed)
        except QuotaUsedUp as error:
            await connection.send(refusal(429, error.code, str(error)))
            return
        except Departed as error:
            await connection.send(refusal(502, error.code, str(error)))
            return
        if not far:
            text = "what was said in this tunnel is not on record, so it cannot be repeated: let the gateway intercept https"
            is_repeated = answer.is_repeated and not answer.is_error
            said = refusal(502, "opaque", text) if is_repeated else _unpacked(json.loads(answer.content))
            await connection.send(said)
            return
        await connection.connected()
        await self._pump(connection, *far[0])

    async def _connected(self, host: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """To the first of its addresses that answers. Raises HostRefused, OSError."""
        failed = OSError("it has no address")
        for found in await self._reach.resolve(host, port):
            try:
                return await asyncio.open_connection(found["host"], port)
            except OSError as error:
                failed = error
        raise failed

    async def _pump(self, connection: Connection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Both ways until one side closes, is silent for too long, or too much was said."""
        left = [self._rules.tunnel_bytes_max]

        async def one_way(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
            with contextlib.suppress(OSError, TimeoutError):
                while left[0] > 0:
                    async with asyncio.timeout(self._rules.idle_s):
                        data = await source.read(CHUNK_BYTES)
                    if not data:
                        break
                    left[0] -= len(data)
                    sink.write(data)
                    await sink.drain()

        ways = [
            asyncio.ensure_future(one_way(connection.reader, writer)),
            asyncio.ensure_future(one_way(reader, connection.writer)),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await end(*ways)
            writer.close()


def as_written(url: str, far: URL) -> URL:
    """`far` with path and query as they stand in `url`: a server may tell `%7E` from `~`, and a signature does."""
    path, _, query = url.partition("://")[2].partition("#")[0].partition("?")
    path = "/" + path.partition("/")[2]
    written = quote(path, _WRITTEN) + (f"?{quote(query, _WRITTEN)}" if query else "")
    return URL(f"{far.scheme}://{far.raw_authority}{written}", encoded=True)


def _characters(value: str) -> str:
    """A header's value as aiohttp takes it, which sends UTF-8: bytes that are none become it."""
    with contextlib.suppress(UnicodeError):
        return value.encode("latin-1").decode()
    return value


def unpacked_request(request: Request, bytes_max: int) -> Request:
    """Without its compression, which the far end is then not told of. Raises InvalidInput for what cannot be read, or is too large when it is."""
    kind = request.header("content-encoding").strip().lower()
    if kind in ("", "identity") or not request.body:
        return request
    if kind not in ("gzip", "x-gzip", "deflate"):
        raise InvalidInput(f"a body in {kind[:40]!r} cannot be recorded: send it plain, or in gzip or deflate")
    reader = zlib.decompressobj(zlib.MAX_WBITS | 32)  # either header
    try:
        body = reader.decompress(request.body, bytes_max + 1)
    except zlib.error as error:
        raise InvalidInput(f"the body is no {kind}: {error}") from error
    if len(body) > bytes_max or not reader.eof:
        raise InvalidInput(f"the body is cut off, or has more than {bytes_max} bytes unpacked")
    return Request(request.method, request.target, request.headers, body)


def _packed(body: bytes, content_type: str) -> dict[str, str]:
    """A body as JSON holds it: as text also where it is none, so that rules for secrets see them between other bytes."""
    if not body:
        return {}
    declared = _CHARSET.search(content_type)
    for charset in (declared[1] if declared else "utf-8", "utf-8", "latin-1"):
        with contextlib.suppress(LookupError, UnicodeError):
            if (text := body.decode(charset)).encode(charset) == body:
                return {"body": text} | ({} if charset == "utf-8" else {"charset": charset})
    raise AssertionError("latin-1 holds any bytes")


def _unpacked(said: dict[str, Any]) -> Reply:
    body = said.get("body", "").encode(said.get("charset", "utf-8"), errors="replace")
    headers = [
        (name, value)
        for name, values in said.get("headers", {}).items()
        for value in (values if isinstance(values, list) else [values])
    ]
    return Reply(said["status"], body, headers)


def _failed(text: str) -> str:
    """A reply of our own where there was none, for client and record."""
    return _recorded(refusal(502, "unavailable", text))


def _refused(text: str) -> str:
    """The same for a host that turned out to be none that may be reached."""
    return _recorded(refusal(403, "host_refused", text))


def _recorded(reply: Reply) -> str:
    return json.dumps(
        {"status": reply.status, "headers": {k: [v] for k, v in reply.headers}, "body": reply.body.decode()}
    )

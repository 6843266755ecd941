"""The tool gateway's listener: who asks, and which form it takes.

http://EXECUTION:TOKEN@host:port     as proxy (absolute URLs, CONNECT)          → proxy.py
                       POST /mcp/NAME    as MCP server, `Authorization: Bearer TOKEN` → relay.py
                       GET /usage        calls, quota left, digest of the responses
"""

import asyncio
import contextlib
import json
import logging
import secrets
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import h11
import msgspec

from gyre.env.mcp.client import McpServer
from gyre.env.mcp.server import reply_to
from gyre.env.outside.gate import Gate
from gyre.env.outside.proxy import Proxy, Rules
from gyre.env.outside.relay import Relay
from gyre.env.outside.wire import Connection, NotAdmitted, Reply, Request, TooLarge, refusal
from gyre.env.recording import Journal
from gyre.errors import Unavailable
from gyre.tasks import end

log = logging.getLogger(__name__)

SILENT_S = 1.0
"""Whoever has said nothing for so long had the time to: of many that come at once the first requests are read after all are accepted."""
_JSON = [("content-type", "application/json")]
CROWD_MAX = 512
"""Connections that have not said whose they are, whatever they say and however new they are: each takes a descriptor. More than `unknown_max` plus
what one pass of the loop accepts (100)."""


class Outside(msgspec.Struct, frozen=True, kw_only=True):
    """What the executions of a process may reach, and how: an argument of `gyre.env.serve`."""

    rules: Rules = Rules()
    intercept: Path | str | None = None
    """Folder of a certificate authority, made on first start: https is read along and recorded. Without it https is tunnelled."""
    mcp: dict[str, McpServer] = {}
    """MCP servers by name, one of each for each execution."""
    listen: str = "127.0.0.1"
    port: int = 0
    """0: any free one."""


@dataclass(frozen=True, slots=True)
class Way:
    """One execution's way out, `Environment.way_out`; for its sandbox."""

    name: str
    token: str
    host: str
    port: int
    ca_file: Path | None
    gate: Gate

    @property
    def proxy_url(self) -> str:
        return f"http://{self.name}:{self.token}@{self.host}:{self.port}"

    def mcp_url(self, server: str) -> str:
        """With `Authorization: Bearer {token}`."""
        return f"http://{self.host}:{self.port}/mcp/{server}"

    def variables(self, direct: str = "localhost,127.0.0.1,::1") -> dict[str, str]:
        """For a sandbox's processes: most clients go by them. `direct`: hosts that are not asked by way of the gateway, as the model's endpoint."""
        said = {"http_proxy": self.proxy_url, "https_proxy": self.proxy_url, "no_proxy": direct}
        said |= {name.upper(): value for name, value in said.items()}
        if self.ca_file is not None:
            trusting = (
                "SSL_CERT_FILE",
                "REQUESTS_CA_BUNDLE",
                "CURL_CA_BUNDLE",
                "NODE_EXTRA_CA_CERTS",
                "GIT_SSL_CAINFO",
                "PIP_CERT",
            )
            said |= dict.fromkeys(trusting, str(self.ca_file.resolve()))
        return said


@dataclass(slots=True)
class _Admitted:
    way: Way
    relay: Relay
    connections: int = 0
    """That have said that they are its."""


class ToolGateway:
    """`await start()`, then `admit` executions; one for all of a process."""

    def __init__(self, outside: Outside, far_ssl: ssl.SSLContext | bool = True) -> None:
        """`far_ssl`: whom we trust at the far end. Raises ConfigError where https is to be read and cannot be."""
        self._outside = outside
        certificates = None
        if outside.intercept is not None:
            from gyre.env.outside.certificates import Certificates  # needs a package that most do without

            certificates = Certificates(Path(outside.intercept))
        self._ca_file = certificates.ca_file if certificates else None
        self._proxy = Proxy(outside.rules, certificates, far_ssl)
        self._admitted: dict[str, _Admitted] = {}
        self._connections: set[asyncio.Task] = set()
        self._unknown: dict[asyncio.Task, Connection] = {}
        """Those that have not said whose they are, the oldest first."""
        self._thinning: asyncio.Task | None = None
        self._evicted = 0
        """Of them, since that was last logged."""
        self._closing: set[asyncio.Future] = set()
        self._server: asyncio.Server | None = None
        self.port = 0
        self.stranger: Callable[[str, str], str | None] = lambda user, password: None
        """(user, password) that no execution has → the name of one that was admitted now, or None: how a process of its own lets them in."""
        self.host: Callable[[Request], Reply | None] = lambda request: None
        """The reply to who may ask about any execution; None: it is nobody of the kind."""

    async def start(self) -> None:
        """Raises Unavailable."""
        try:
            self._server = await asyncio.start_server(self._serve, self._outside.listen, self._outside.port)
        except OSError as error:
            raise Unavailable(
                f"the tool gateway cannot listen on {self._outside.listen}:{self._outside.port}: {error}"
            ) from error
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        await end(*self._connections, *([self._thinning] if self._thinning else []))
        for name in list(self._admitted):
            await self.dismiss(name)
        await asyncio.gather(*self._closing, return_exceptions=True)
        await self._proxy.close()

    def admit(self, name: str, journal: Callable[[], Journal], token: str = "", traceparent: str = "") -> Way:
        """An execution's way out; `journal` and `traceparent` as in Gate."""
        token = token or secrets.token_urlsafe(24)
        gate = Gate(journal, self._outside.rules.call_s, traceparent)
        way = Way(name, token, self._outside.listen, self.port, self._ca_file, gate)
        self._admitted[name] = _Admitted(way, Relay(gate, self._outside.mcp))
        return way

    def gate(self, name: str) -> Gate:
        """Of an execution that was admitted."""
        return self._admitted[name].way.gate

    async def dismiss(self, name: str) -> None:
        """Nothing more of it goes out. Repeats change nothing."""
        if (gone := self._admitted.pop(name, None)) is not None:
            await gone.relay.close()

    def forget(self, name: str) -> None:
        """As `dismiss`, without waiting for its servers to end."""
        if (gone := self._admitted.pop(name, None)) is not None:
            closing = asyncio.ensure_future(gone.relay.close())
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        rules = self._outside.rules
        task = asyncio.current_task()
        self._connections.add(task)
        connection = self._unknown[task] = Connection(reader, writer, rules.bytes_max, rules.idle_s)
        if len(self._unknown) > max(CROWD_MAX, rules.unknown_max):
            self._evict([next(iter(self._unknown))])
        if len(self._unknown) > rules.unknown_max and (self._thinning is None or self._thinning.done()):
            self._thinning = asyncio.create_task(self._thin())
        try:
            await self._converse(connection)
        except NotAdmitted:
            with contextlib.suppress(h11.LocalProtocolError, OSError):
                await connection.send(_unknown())
                await connection.linger()
        except TooLarge as error:
            with contextlib.suppress(h11.LocalProtocolError, OSError):
                await connection.send(refusal(413, "too_large", str(error)))
                await connection.linger()
        except h11.RemoteProtocolError as error:
            with contextlib.suppress(h11.LocalProtocolError, OSError):
                await connection.send(refusal(400, "invalid_input", f"this is no HTTP/1.1: {error}"))
                await connection.linger()
        except (OSError, ssl.SSLError, h11.LocalProtocolError) as error:
            log.debug("a connection broke: %r", error)
        except Exception:
            log.exception("a defect while a call to the outside was made")
        finally:
            self._connections.discard(task)
            self._unknown.pop(task, None)
            writer.close()

    async def _thin(self) -> None:
        """Until no more are unknown than may be: who holds connections open without a word is not who has just come."""
        unknown_max = self._outside.rules.unknown_max
        while len(self._unknown) > unknown_max:
            await asyncio.sleep(
                SILENT_S
            )  # after which what has come meanwhile was read, however long the loop stood still
            before_s = time.monotonic() - SILENT_S
            silent = [task for task, line in self._unknown.items() if not line.has_spoken and line.opened_s <= before_s]
            self._evict(silent[: max(0, len(self._unknown) - unknown_max)])
            if self._evicted:
                text = "%d connections that had not said whose they are were closed; there are %d, and %d may be"
                log.warning(text, self._evicted, len(self._unknown), unknown_max)
                self._evicted = 0

    def _evict(self, tasks: list[asyncio.Task]) -> None:
        for task in tasks:
            task.cancel()
            del self._unknown[task]
        self._evicted += len(tasks)

    async def _converse(self, connection: Connection) -> None:
        held: list[_Admitted] = []
        try:
            await self._answer(connection, held)
        finally:
            for admitted in held:
                admitted.connections -= 1

    def _take_seat(self, admitted: _Admitted, held: list[_Admitted]) -> bool:
        """Whether this connection may be one of the execution's; `held` says whose it is by now."""
        if admitted in held:
            return True
        if admitted.connections >= self._outside.rules.connections_max:
            return False
        admitted.connections += 1
        held.append(admitted)
        self._unknown.pop(asyncio.current_task(), None)
        return True

    async def _next(self, connection: Connection, is_known: bool, is_inside: bool) -> Request | None:
        left_s = connection.opened_s + self._outside.rules.unknown_s - time.monotonic()
        try:
            async with asyncio.timeout(None if is_known else left_s):
                return await connection.next(lambda head: is_inside or self._who(head) is not None)
        except TimeoutError:
            return None

    async def _answer(self, connection: Connection, held: list[_Admitted]) -> None:
        base, inside = "", None
        while (request := await self._next(connection, bool(held), inside is not None)) is not None:
            if request.target.startswith("/") and not base and (said := self.host(request)) is not None:
                await connection.send(said)
                continue
            admitted = inside or self._who(request)
            if admitted is None:
                await connection.send(_unknown())
            elif not self._take_seat(admitted, held):
                text = f"{admitted.connections} connections of this execution are open"
                await connection.send(refusal(503, "overloaded", text, ("retry-after", "1")))
                return
            elif request.method == "CONNECT" and not base:
                base = await self._proxy.connect(admitted.way.gate, request, connection) or ""
                inside = admitted
                if not base:
                    return
            elif request.target.startswith("/") and not base:
                await connection.send(await self._own(admitted, request))
            else:
                await connection.send(await self._proxy.answer(admitted.way.gate, request, base))

    def _who(self, request: Request) -> _Admitted | None:
        header = "authorization" if request.target.startswith("/") else "proxy-authorization"
        user, password = request.credentials(header)
        for name, admitted in self._admitted.items():
            if secrets.compare_digest(password.encode(), admitted.way.token.encode()) and (user == name or not user):
                return admitted
        name = self.stranger(user, password)
        return self._admitted.get(name) if name else None

    async def _own(self, admitted: _Admitted, request: Request) -> Reply:
        """What is asked of the gateway itself."""
        path = request.target.partition("?")[0]
        if path == "/usage" and request.method == "GET":
            return usage_reply(admitted.way.gate)
        if path == "/usage":
            return refusal(403, "not_yours", "an execution may read its usage; only the host ends it")
        if not path.startswith("/mcp/"):
            return refusal(
                404, "not_found", "there are /usage and /mcp/NAME; other servers are asked by their absolute URL"
            )
        if request.method == "DELETE":
            return Reply(200)
        if request.method != "POST":
            return refusal(405, "invalid_input", "messages are sent by POST", ("allow", "POST"))
        name = path.removeprefix("/mcp/")
        said = await reply_to(request.body, lambda message: admitted.relay.handle(name, message))
        return Reply(202) if said is None else Reply(200, said.encode(), _JSON)


def _unknown() -> Reply:
    challenge = ("proxy-authenticate", 'Basic realm="execution"')
    return refusal(407, "unknown_execution", "say which execution this is: NAME:TOKEN", challenge)


def usage(gate: Gate) -> dict[str, int | str]:
    """What accounting asks: calls that went out, quota left (-1: any number), how a call departed from the record."""
    return {"calls": gate.made, "quota_left": gate.quota_left, "departed": gate.departed}


def usage_reply(gate: Gate) -> Reply:
    return Reply(200, json.dumps(usage(gate)).encode(), _JSON)

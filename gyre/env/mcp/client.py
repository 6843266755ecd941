"""A client of one MCP server. What the server asks of its client (sampling, roots, elicitation) is answered that there is none."""

import asyncio
import contextlib
import json
import os
import signal
from importlib.metadata import version
from typing import Any

import aiohttp
import msgspec

from gyre.errors import InvalidInput, Unavailable

PROTOCOL_VERSION = "2025-06-18"
LINE_BYTES_MAX = 16 * 2**20
REQUEST_S = 120.0
START_S = 60.0
CLOSE_S = 5.0
TOOLS_MAX = 4096
"""As many as a call to the model may offer."""
METHOD_NOT_FOUND = -32601


class McpServer(msgspec.Struct, frozen=True, kw_only=True):
    """Where a server is: a command that speaks over its stdin and stdout, or the URL of one that speaks over HTTP."""

    command: tuple[str, ...] = ()
    url: str = ""
    env: dict[str, str] = {}
    """Variables of the command, besides those of this process."""
    cwd: str | None = None
    headers: dict[str, str] = {}
    """Of each request to `url`, e.g. authorization."""


class McpError(InvalidInput):
    """The server answered with an error; `number` is JSON-RPC's."""

    code = "mcp_error"

    def __init__(self, number: int, message: str) -> None:
        super().__init__(message)
        self.number = number


class SessionGone(Unavailable):
    """The server over HTTP does not know our session any more: it carried nothing out, and a new session is to be begun."""

    code = "mcp_session_gone"

    def __init__(self, message: str, session: str) -> None:
        super().__init__(message)
        self.session = session


def read(text: str | bytes) -> Any:
    """A message. Raises ValueError for what is none, also for what is nested too deep to be read."""
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("it is nested too deep") from error


class McpClient:
    """`async with McpClient(server) as client`."""

    def __init__(self, server: McpServer, request_s: float = REQUEST_S) -> None:
        if bool(server.command) == bool(server.url):
            raise InvalidInput("an MCP server needs a command or a url, and not both")
        self._line: _Stdio | _Http = _Stdio(server) if server.command else _Http(server)
        self._request_s = request_s
        self._serial = 0
        self._renewing = asyncio.Lock()
        self.about: dict[str, Any] = {}
        """What it said to `initialize`."""

    async def __aenter__(self) -> "McpClient":
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def open(self) -> None:
        """Raises Unavailable, McpError."""
        try:
            await self._line.open()
            await self._begin()
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Repeats change nothing."""
        await self._line.close()

    async def request(
        self, method: str, params: dict[str, Any] | None = None, timeout_s: float | None = None
    ) -> dict[str, Any]:
        """Its result. Raises McpError, Unavailable."""
        try:
            return await self._asked(method, params, timeout_s)
        except SessionGone as gone:
            async with self._renewing:
                if self._line.session == gone.session:  # else somebody else's request has begun a new one
                    await self._begin()
            return await self._asked(method, params, timeout_s)

    async def _begin(self) -> None:
        """A session: the handshake."""
        about = {"name": "gyre", "version": version("gyre-rl")}
        said = {"protocolVersion": PROTOCOL_VERSION, "capabilities": {}, "clientInfo": about}
        self._line.session = self._line.version = ""
        self.about = await self._asked("initialize", said, START_S)
        self._line.version = str(self.about.get("protocolVersion") or PROTOCOL_VERSION)
        await self._line.send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    async def _asked(
        self, method: str, params: dict[str, Any] | None = None, timeout_s: float | None = None
    ) -> dict[str, Any]:
        self._serial += 1
        message = {"jsonrpc": "2.0", "id": self._serial, "method": method} | ({"params": params} if params else {})
        try:
            async with asyncio.timeout(timeout_s or self._request_s):
                reply = await self._line.ask(message)
        except TimeoutError:
            raise Unavailable(
                f"the MCP server did not answer {method} within {timeout_s or self._request_s:g} s"
            ) from None
        if isinstance(error := reply.get("error"), dict):
            code = error.get("code", 0)
            raise McpError(code if isinstance(code, int) else 0, str(error.get("message", ""))[:2000])
        if not isinstance(result := reply.get("result"), dict):
            raise McpError(0, f"the MCP server's answer to {method} has neither result nor error")
        return result

    @property
    def is_gone(self) -> bool:
        """Its process has ended: it answers nothing any more."""
        return self._line.is_gone

    async def tools(self) -> list[dict[str, Any]]:
        """All pages of tools/list, each tool with a name. Raises McpError, Unavailable, also for a list that makes no sense or has no end."""
        found: list[dict[str, Any]] = []
        cursors: set[str] = set()
        cursor = ""
        while True:
            page = await self.request("tools/list", {"cursor": cursor} if cursor else None)
            tools = page.get("tools") or []
            if not isinstance(tools, list) or not all(isinstance(tool, dict) for tool in tools):
                raise Unavailable("the MCP server's list of tools is no list of objects")
            if any(not isinstance(tool.get("name"), str) for tool in tools):
                raise Unavailable("the MCP server has a tool without a name")
            found += tools
            cursor = page.get("nextCursor") or ""
            if not cursor:
                return found
            if not isinstance(cursor, str) or cursor in cursors or len(found) > TOOLS_MAX or len(cursors) >= TOOLS_MAX:
                raise Unavailable(f"the MCP server's list of tools has no end: {len(found)} and more")
            cursors.add(cursor)

    async def call(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """tools/call: `{"content": [blocks], "isError": bool}`."""
        return await self.request("tools/call", {"name": name, "arguments": arguments})


class _Stdio:
    """Messages one a line; replies are matched by id, so a late one is never taken for another's."""

    session = version = ""
    """As _Http's; over a pipe nobody asks for them."""

    def __init__(self, server: McpServer) -> None:
        self._server = server
        self._child: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task | None = None
        self._asked: dict[int, asyncio.Future] = {}

    @property
    def is_gone(self) -> bool:
        return self._reading is not None and self._reading.done()

    async def open(self) -> None:
        pipe = asyncio.subprocess.PIPE
        try:
            self._child = await asyncio.create_subprocess_exec(
                *self._server.command, stdin=pipe, stdout=pipe, cwd=self._server.cwd, env=os.environ | self._server.env,
                limit=LINE_BYTES_MAX, start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            raise Unavailable(f"the MCP server {self._server.command[0]} cannot be started: {error}") from error
        self._reading = asyncio.create_task(self._read())

    async def send(self, message: dict[str, Any]) -> None:
        try:
            self._child.stdin.write(json.dumps(message).encode() + b"\n")
            await self._child.stdin.drain()
        except (OSError, RuntimeError) as error:
            raise Unavailable(f"the MCP server {self._server.command[0]} is gone: {error}") from error

    async def ask(self, message: dict[str, Any]) -> dict[str, Any]:
        if self._reading is None or self.is_gone:
            raise Unavailable(f"the MCP server {self._server.command[0]} is gone")
        future = self._asked[message["id"]] = asyncio.get_running_loop().create_future()
        try:
            await self.send(message)
            return await future
        finally:
            self._asked.pop(message["id"], None)

    async def close(self) -> None:
        child, self._child = self._child, None
        if self._reading is not None:
            self._reading.cancel()
        if child is None:
            return
        child.stdin.close()  # the protocol's way of saying that it is over
        try:
            async with asyncio.timeout(CLOSE_S):
                await child.wait()
        except TimeoutError:
            _kill(child.pid)
            await child.wait()
        _kill(child.pid)  # what it started and did not end

    async def _read(self) -> None:
        try:
            while line := await self._child.stdout.readline():
                with contextlib.suppress(ValueError):
                    message = read(line)
                    if isinstance(message, dict):
                        await self._take(message)
        except (ValueError, OSError, Unavailable):  # a line beyond the bound
            pass
        finally:
            gone = Unavailable(f"the MCP server {self._server.command[0]} ended")
            for future in self._asked.values():
                if not future.done():
                    future.set_exception(gone)

    async def _take(self, message: dict[str, Any]) -> None:
        if "method" in message:
            if "id" in message:
                await self.send(_refused(message))
        elif isinstance(number := message.get("id"), int) and (future := self._asked.get(number)) is not None:
            if not future.done():
                future.set_result(message)


def _kill(group: int) -> None:
    """All of a server's session; nothing where nobody is left in it."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)


class _Http:
    """Streamable HTTP: each message is a POST, answered by JSON or by a stream of events that ends with the reply."""

    is_gone = False
    """It may answer the next one."""

    def __init__(self, server: McpServer) -> None:
        self._server = server
        self._http: aiohttp.ClientSession | None = None
        self.session = ""
        """The server's word for it, empty where it has none."""
        self.version = ""
        """Of the protocol, as agreed; empty before."""

    async def open(self) -> None:
        self._http = aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=10), read_bufsize=LINE_BYTES_MAX
        )

    async def send(self, message: dict[str, Any]) -> None:
        async with self._post(message) as reply:
            self._check(reply)

    async def ask(self, message: dict[str, Any]) -> dict[str, Any]:
        try:
            async with self._post(message) as reply:
                if message["method"] == "initialize":
                    self.session = reply.headers.get("mcp-session-id", "")
                self._check_session(reply)
                if reply.content_type == "text/event-stream":
                    return await self._from_events(reply, message["id"])
                self._check(reply)
                said = read(await reply.read())
        except Unavailable:
            raise
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise Unavailable(f"{self._server.url} cannot be reached: {error}") from error
        if not isinstance(said, dict) or said.get("id") != message["id"]:
            raise Unavailable(f"{self._server.url} answered another request")
        return said

    async def close(self) -> None:
        http, self._http = self._http, None
        if http is None:
            return
        with contextlib.suppress(aiohttp.ClientError, OSError, TimeoutError):
            if self.session:
                async with asyncio.timeout(CLOSE_S), http.delete(self._server.url, headers=self._headers()):
                    pass
        await http.close()

    def _post(self, message: dict[str, Any]):
        return self._http.post(self._server.url, json=message, headers=self._headers())

    def _headers(self) -> dict[str, str]:
        said = {"accept": "application/json, text/event-stream"}
        said |= {"mcp-protocol-version": self.version} if self.version else {}
        return said | ({"mcp-session-id": self.session} if self.session else {}) | self._server.headers

    def _check_session(self, reply: aiohttp.ClientResponse) -> None:
        if reply.status == 404 and (asked := reply.request_info.headers.get("mcp-session-id")):
            raise SessionGone(f"{self._server.url} does not know this session any more", asked)

    def _check(self, reply: aiohttp.ClientResponse) -> None:
        if reply.status >= 400 and reply.content_type != "application/json":
            raise Unavailable(f"{self._server.url} answered {reply.status}")

    async def _from_events(self, reply: aiohttp.ClientResponse, number: int) -> dict[str, Any]:
        data: list[str] = []
        async for raw in reply.content:
            line = raw.decode(errors="replace").rstrip("\r\n")
            if line.startswith("data:"):
                data.append(line[5:].removeprefix(" "))
            elif not line and data:
                message, data = read("\n".join(data)), []
                if isinstance(message, dict) and message.get("id") == number and "method" not in message:
                    return message
        raise Unavailable(f"{self._server.url} closed the stream without an answer")


def _refused(message: dict[str, Any]) -> dict[str, Any]:
    """An answer to what a server asks of its client."""
    if message["method"] == "ping":
        return {"jsonrpc": "2.0", "id": message["id"], "result": {}}
    error = {"code": METHOD_NOT_FOUND, "message": f"this client has no {message['method']}"}
    return {"jsonrpc": "2.0", "id": message["id"], "error": error}

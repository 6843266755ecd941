"""Tools served as an MCP server: to a harness that speaks MCP, to an inspector, to anybody's client.

python -m gyre.env.mcp examples.repair.environment:Repair --seed 7        over stdin and stdout
"""

import asyncio
import json
import logging
import sys
from collections.abc import Awaitable, Callable
from importlib.metadata import version
from typing import Any

from aiohttp import web

from gyre.env.environment import ToolCall
from gyre.env.mcp.client import LINE_BYTES_MAX, METHOD_NOT_FOUND, PROTOCOL_VERSION, read
from gyre.env.shapes import mcp_result, mcp_tools, step_result
from gyre.env.worker import shown
from gyre.errors import GyreError

log = logging.getLogger(__name__)

PARSE_ERROR, INVALID_REQUEST, INVALID_PARAMS, INTERNAL_ERROR = -32700, -32600, -32602, -32603
VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
"""With a handshake; they differ in what we do not offer."""


class RpcFault(Exception):
    """Becomes a JSON-RPC error."""

    def __init__(self, number: int, message: str) -> None:
        super().__init__(message)
        self.number = number


class ToolServer:
    """`tools` in OpenAI's or MCP's form; `call` carries one out and says what `Environment.step` may say."""

    def __init__(self, name: str, tools: list[dict[str, Any]], call: Callable[[ToolCall], Awaitable[Any]]) -> None:
        self._name, self._tools, self._call = name, mcp_tools(tools), call
        self._names = {tool["name"] for tool in self._tools}

    async def handle(self, message: Any) -> dict[str, Any] | None:
        """The reply to one message; None where none is due."""
        return await answered(message, self._result)

    async def _result(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        match method:
            case "initialize":
                return about(self._name, params)
            case "ping":
                return {}
            case "tools/list":
                return {"tools": self._tools}
            case "tools/call":
                return await self._called(params)
        raise RpcFault(METHOD_NOT_FOUND, f"there is no method {method[:80]}")

    async def _called(self, params: dict[str, Any]) -> dict[str, Any]:
        name, arguments = params.get("name"), params.get("arguments") or {}
        if not isinstance(name, str) or name not in self._names:
            raise RpcFault(
                INVALID_PARAMS, f"there is no tool {str(name)[:80]}; tools: {', '.join(sorted(self._names))}"
            )
        if not isinstance(arguments, dict):
            raise RpcFault(INVALID_PARAMS, "arguments must be an object")
        return mcp_result(step_result(await self._call(ToolCall(call_id="", name=name, arguments=arguments))))


def about(name: str, params: dict[str, Any]) -> dict[str, Any]:
    """The answer to `initialize`, in the client's version where we know it."""
    asked = params.get("protocolVersion")
    said = asked if asked in VERSIONS else PROTOCOL_VERSION
    info = {"name": name, "version": version("gyre-rl")}
    return {"protocolVersion": said, "capabilities": {"tools": {}}, "serverInfo": info}


async def answered(
    message: Any, result: Callable[[str, dict[str, Any]], Awaitable[dict[str, Any]]]
) -> dict[str, Any] | None:
    """`result(method, params)` in JSON-RPC's envelope. Notifications and replies are heard and not answered."""
    if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
        return _fault(None, INVALID_REQUEST, "a JSON-RPC 2.0 message is needed; batches are not taken")
    if "method" not in message or "id" not in message:
        return None
    number, params = message["id"], message.get("params") or {}
    if not isinstance(message["method"], str) or not isinstance(params, dict):
        return _fault(number, INVALID_REQUEST, "method must be a text and params an object")
    try:
        return {"jsonrpc": "2.0", "id": number, "result": await result(message["method"], params)}
    except RpcFault as error:
        return _fault(number, error.number, str(error))
    except GyreError as error:
        return _fault(number, INTERNAL_ERROR, f"{error.code}: {error}")
    except Exception as error:  # of whoever carries it out: others of the same server go on
        log.exception("a defect while %s was answered", message["method"][:80])
        return _fault(number, INTERNAL_ERROR, shown(error))


def written(reply: dict[str, Any]) -> str:
    """JSON; of what cannot be said in it, an error in its place."""
    try:
        return json.dumps(reply)
    except (TypeError, ValueError, RecursionError) as error:
        return json.dumps(_fault(reply.get("id"), INTERNAL_ERROR, f"the result is no JSON: {error}"))


async def reply_to(text: str | bytes, handle: Callable[[Any], Awaitable[dict[str, Any] | None]]) -> str | None:
    """What to say to a message as it came; None where nothing is due."""
    try:
        message = read(text)
    except ValueError as error:
        return written(_fault(None, PARSE_ERROR, f"this is no JSON: {error}"))
    reply = await handle(message)
    return None if reply is None else written(reply)


def _fault(number: Any, code: int, message: str) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "error": {"code": code, "message": message[:2000]}}


async def serve_stdio(handle: Callable[[Any], Awaitable[dict[str, Any] | None]]) -> None:
    """Messages one a line from stdin, replies to stdout, until stdin ends."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=LINE_BYTES_MAX)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while (line := await _line(reader)) != b"":
        said = await reply_to(line, handle)
        if said is not None:
            sys.stdout.write(said + "\n")
            sys.stdout.flush()


async def _line(reader: asyncio.StreamReader) -> bytes:
    """The next one; what is beyond the bound is dropped, and what is left of it is answered as no JSON."""
    try:
        return await reader.readline()
    except ValueError:
        return b"a line of too many bytes\n"


def http_handler(
    handle: Callable[[Any], Awaitable[dict[str, Any] | None]],
) -> Callable[[web.Request], Awaitable[web.Response]]:
    """For `app.router.add_post(path, …)`: streamable HTTP, each request answered by plain JSON."""

    async def post(request: web.Request) -> web.Response:
        said = await reply_to(await request.read(), handle)
        return web.Response(status=202) if said is None else web.Response(text=said, content_type="application/json")

    return post

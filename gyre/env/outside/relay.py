"""The MCP form of the tool gateway: an MCP server that stands in front of others and lets every call through the execution's gate.

    harness ── POST /mcp/NAME ──▶ Gate ──▶ the server NAME, one for each execution
    harness ── stdio ──▶ `python -m gyre.env.outside mcp` ── POST /mcp/NAME ──▶ …

Listings pass through; what a server says of its own accord (progress, logs, changed lists) and asks of its client does not.
"""

import json
from typing import Any

from gyre.env.mcp.client import METHOD_NOT_FOUND, McpClient, McpError, McpServer
from gyre.env.mcp.server import RpcFault, answered
from gyre.env.outside.gate import Gate, QuotaUsedUp
from gyre.env.recording import Departed
from gyre.errors import GyreError

RECORDED = frozenset({"tools/call", "resources/read", "prompts/get", "completion/complete"})
"""What is a call to the outside: recorded, counted, repeated."""
PASSED = frozenset({"tools/list", "resources/list", "resources/templates/list", "prompts/list"})
OFFERED = ("tools", "resources", "prompts", "completions")
"""Capabilities of which something passes."""
DEPARTED = -32001
"""JSON-RPC's number of a call that departs from the record, of those left to implementations."""
SHARED_PARAMS = ("_meta",)
"""Of a request: tokens of progress and traces, which differ each time."""


class Relay:
    """The servers of one execution, each started when it is first spoken to, and again when it has ended since."""

    def __init__(self, gate: Gate, servers: dict[str, McpServer]) -> None:
        self._gate, self._servers = gate, servers
        self._clients: dict[str, McpClient] = {}

    async def handle(self, name: str, message: Any) -> dict[str, Any] | None:
        """The reply to a message for the server `name`; None where none is due."""
        return await answered(message, lambda method, params: self._result(name, method, params))

    async def close(self) -> None:
        for client in self._clients.values():
            await client.close()

    async def _result(self, name: str, method: str, params: dict[str, Any]) -> dict[str, Any]:
        if method == "ping":
            return {}
        if method == "initialize":
            client = await self._client(name)
            about = {"serverInfo": client.about.get("serverInfo") or {"name": name, "version": ""}}
            return client.about | about | {"capabilities": _passed_on(client.about.get("capabilities"))}
        if method in PASSED:
            return await self._asked(name, method, params)
        if method not in RECORDED:  # server/discover among them: clients of later versions then shake hands
            raise RpcFault(METHOD_NOT_FOUND, f"the tool gateway passes no {method[:80]} on")
        return await self._recorded(name, method, params)

    async def _recorded(self, name: str, method: str, params: dict[str, Any]) -> dict[str, Any]:
        asked = {key: value for key, value in params.items() if key not in SHARED_PARAMS}

        async def exchange() -> tuple[str, bool]:
            try:
                result = await self._asked(name, method, asked)
                return json.dumps({"result": result}), bool(result.get("isError"))
            except RpcFault as error:
                return json.dumps({"error": {"code": error.number, "message": str(error)}}), True

        try:
            answer = await self._gate.call(f"mcp {name} {method}", asked, exchange, _failed)
        except QuotaUsedUp as error:
            if method == "tools/call":  # an ordinary error, which the agent reads like any other
                return {"content": [{"type": "text", "text": f"error: {error}"}], "isError": True}
            raise
        except Departed as error:
            raise RpcFault(DEPARTED, f"{error.code}: {error}") from error
        said = json.loads(answer.content)
        if "error" in said:
            raise RpcFault(said["error"]["code"], said["error"]["message"])
        return said["result"]

    async def _asked(self, name: str, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Of the server itself. Raises RpcFault."""
        try:
            return await (await self._client(name)).request(method, params)
        except McpError as error:
            raise RpcFault(error.number, str(error)) from error
        except GyreError as error:
            raise RpcFault(-32603, f"{error.code}: {error}") from error

    async def _client(self, name: str) -> McpClient:
        if name not in self._servers:
            raise RpcFault(-32602, f"there is no MCP server {name[:80]}; servers: {', '.join(sorted(self._servers))}")
        if name in self._clients and self._clients[name].is_gone:  # whoever was told so may have it started anew
            await self._clients.pop(name).close()
        if name not in self._clients:
            client = McpClient(self._servers[name])
            try:
                await client.open()
            except GyreError as error:
                raise RpcFault(-32603, f"{error.code}: {error}") from error
            if (other := self._clients.setdefault(name, client)) is not client:  # two messages at once
                await client.close()
                return other
        return self._clients[name]


def _passed_on(capabilities: Any) -> dict[str, Any]:
    """Of what a server says that it can: clients ask for whatever they are told of (subscriptions, log levels)."""
    return {name: {} for name in OFFERED if isinstance(capabilities, dict) and name in capabilities}


def _failed(text: str) -> str:
    return json.dumps({"error": {"code": -32603, "message": text}})

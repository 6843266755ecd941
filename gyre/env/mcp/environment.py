"""An environment whose tools are those of MCP servers, started or connected to anew for each attempt.

class Files(McpEnvironment):
    name = "files"
    servers = {"fs": McpServer(command=("python", "server.py"))}

    def first(self):  ...the first messages
    def score(self):  ...from the state that the servers left
"""

from abc import abstractmethod
from typing import Any, ClassVar

from gyre.env.environment import Environment, Evidence, Task, ToolCall
from gyre.env.mcp.client import McpClient, McpError, McpServer
from gyre.errors import InvalidInput

SEPARATOR = "__"
"""Between a server's name and a tool's, where there are several servers; tools' names have letters, digits, `_` and `-`."""


class McpEnvironment(Environment):
    """Implement `first` and `score`; `servers` may be made in `__init__`, where they depend on the task."""

    servers: ClassVar[dict[str, McpServer]] = {}

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.clients: dict[str, McpClient] = {}
        self._tools: dict[str, tuple[McpClient, str]] = {}

    @abstractmethod
    def first(self) -> list[dict[str, Any]]:
        """The first messages; the servers are up."""

    async def reset(self) -> list[dict[str, Any]]:
        for name, server in self.servers.items():
            self.clients[name] = McpClient(server)
            await self.clients[name].open()
        return self.first()

    async def tools(self) -> list[dict[str, Any]]:
        listed: list[dict[str, Any]] = []
        for name, client in self.clients.items():
            for tool in await client.tools():
                shown = tool["name"] if len(self.clients) == 1 else f"{name}{SEPARATOR}{tool['name']}"
                if shown in self._tools:
                    raise InvalidInput(f"two tools are called {shown}")
                self._tools[shown] = (client, tool["name"])
                schema = tool.get("inputSchema") or {"type": "object", "properties": {}}
                listed.append({"name": shown, "description": tool.get("description") or "", "inputSchema": schema})
        return listed

    async def step(self, call: ToolCall) -> dict[str, Any]:
        """What the server says of wrong arguments is an observation; a server that is gone fails the execution."""
        client, name = self._tools[call.name]
        try:
            return await client.call(name, call.arguments)
        except McpError as error:
            return {"content": [{"type": "text", "text": f"error: {error}"}], "isError": True}

    def evidence(self) -> Evidence:
        infos = {name: client.about.get("serverInfo") or {} for name, client in self.clients.items()}
        said = {
            f"mcp:{name}": f"{info.get('name', '')} {info.get('version', '')}".strip() for name, info in infos.items()
        }
        return Evidence(image_digest="", tool_versions=said)

    async def close(self) -> None:
        for client in self.clients.values():
            await client.close()

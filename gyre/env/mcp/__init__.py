"""The Model Context Protocol, both ways: the tools of MCP servers as an environment's, and an environment's tools as an MCP server.

| file | what |
|---|---|
| client.py | a client of one server, over its stdin and stdout or over streamable HTTP |
| environment.py | an environment whose tools are those of MCP servers |
| server.py | tools served as an MCP server |

The protocol is JSON-RPC 2.0 with a handshake (`initialize`); ours is the version below, which servers and clients of later ones speak as well.
"""

from gyre.env.mcp.client import McpClient, McpError, McpServer
from gyre.env.mcp.environment import McpEnvironment
from gyre.env.mcp.server import ToolServer

__all__ = ["McpClient", "McpEnvironment", "McpError", "McpServer", "ToolServer"]

"""An MCP server of notes, where the package `mcp` is: `python examples/mcp_env/server.py [--http PORT]`. Nothing of Gyre is needed here."""

import sys

from mcp.server.mcpserver import MCPServer

server = MCPServer("notes")
notes: dict[str, str] = {}


@server.tool()
def write(name: str, text: str) -> str:
    """Write a note."""
    if not name.isidentifier():
        raise ValueError(f"{name!r} is no name")
    notes[name] = text
    return f"{name}: {len(text)} characters"


@server.tool()
def read(name: str) -> str:
    """Read a note."""
    return notes[name]


if __name__ == "__main__":
    if "--http" in sys.argv:
        server.run("streamable-http", port=int(sys.argv[-1]))
    else:
        server.run("stdio")

"""An MCP server of these tests, over stdin and stdout: `python -m tests.unit.env.mcp_world LOG`. Notes each call in LOG."""

import asyncio
import sys
from pathlib import Path

from gyre.env import StepResult
from gyre.env.mcp.server import ToolServer, serve_stdio

NUMBER = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}, "required": ["a", "b"]}
TOOLS = [
    {"name": "add", "description": "Adds.", "inputSchema": NUMBER},
    {"name": "fail", "description": "Fails.", "inputSchema": {"type": "object"}},
    {"name": "exit", "description": "Ends the server.", "inputSchema": {"type": "object"}},
]


def note(line: str) -> None:
    with Path(sys.argv[1]).open("a") as log:
        log.write(line)


async def call(asked):
    note(f"{asked.name} {asked.arguments}\n")
    if asked.name == "exit":
        sys.exit(3)
    if asked.name == "fail":
        return StepResult(content="it failed", error=True)
    return StepResult(content=str(asked.arguments["a"] + asked.arguments["b"]))


if __name__ == "__main__":
    asyncio.run(serve_stdio(ToolServer("adding", TOOLS, call).handle))

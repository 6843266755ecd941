"""The official MCP client, in its own environment: `python mcp_client.py URL-or-COMMAND… ` calls `add` and says what it got as a line of JSON."""

import asyncio
import json
import sys

import httpx2
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client


async def main() -> None:
    where, token = sys.argv[2:], sys.argv[1]
    if where[0].startswith("http"):
        async with httpx2.AsyncClient(headers={"authorization": f"Bearer {token}"}) as http:
            await talk(streamable_http_client(where[0], http_client=http))
    else:
        await talk(StdioServerParameters(command=where[0], args=where[1:]))


async def talk(server) -> None:
    async with Client(server) as client:
        tools = [tool.name for tool in (await client.list_tools()).tools]
        added = await client.call_tool("add", {"a": 2, "b": 3})
        failed = await client.call_tool("fail", {})
        text = [block.text for block in (*added.content, *failed.content)]
        print(json.dumps({"tools": tools, "text": text, "failed": failed.is_error}), flush=True)


asyncio.run(main())

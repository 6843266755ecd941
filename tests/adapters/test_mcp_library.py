"""MCP with the official library on the other side: its servers under our environment and gateway, its client at our servers (C4, C6)."""

import asyncio
import contextlib
import json
import os
import sys

import pytest

from gyre.bus.server import free_port, wait_for_port
from gyre.env.mcp import McpClient, McpServer
from gyre.env.outside import Outside
from tests.adapters.stack import tool_text
from tests.support import ROOT
from tests.unit.env.test_mcp import through
from tests.unit.env.test_outside import gateway, journal

pytestmark = pytest.mark.timeout(600)
SERVER = str(ROOT / "examples" / "mcp_env" / "server.py")
SAID = {"tools": ["add", "fail", "exit"], "text": ["5", "it failed"], "failed": True}


async def talk(python: str, token: str, *where: str) -> dict:
    """What the official client got."""
    program = ROOT / "tests" / "adapters" / "programs" / "mcp_client.py"
    child = await asyncio.create_subprocess_exec(
        python, str(program), token, *where, cwd=ROOT, stdout=asyncio.subprocess.PIPE
    )
    out, _ = await asyncio.wait_for(child.communicate(), 120)
    return json.loads(out)


@contextlib.asynccontextmanager
async def over_http(python: str):
    port = free_port()
    child = await asyncio.create_subprocess_exec(python, SERVER, "--http", str(port), cwd=ROOT)
    try:
        await wait_for_port(port, 120, lambda: child.returncode is None)
        yield McpServer(url=f"http://127.0.0.1:{port}/mcp")
    finally:
        with contextlib.suppress(ProcessLookupError):
            child.kill()
        await child.wait()


async def write_and_read(server: McpServer) -> None:
    async with McpClient(server) as client:
        assert client.about["serverInfo"]["name"] == "notes"
        assert [tool["name"] for tool in await client.tools()] == ["write", "read"]
        said = await client.call("write", {"name": "a", "text": "x"})
        assert said["content"][0]["text"] == "a: 1 characters" and not said.get("isError")
        assert (await client.call("read", {"name": "a"}))["content"][0]["text"] == "x"
        assert (await client.call("write", {"name": "not a name", "text": ""}))["isError"]


async def test_our_client_speaks_with_the_librarys_server_over_stdio_and_http(python_of):
    await write_and_read(McpServer(command=(python_of("mcp"), SERVER)))
    async with over_http(python_of("mcp")) as server:
        await write_and_read(server)


async def test_the_librarys_client_speaks_with_our_server(python_of, tmp_path):
    """Started by it, over stdin and stdout: it asks for a later version first and then shakes hands."""
    command = (sys.executable, "-m", "tests.unit.env.mcp_world", str(tmp_path / "calls.log"))
    assert await talk(python_of("mcp"), "", *command) == SAID


async def test_the_librarys_client_goes_through_the_gateway_and_a_replay_says_the_same(python_of, tmp_path):
    """Over streamable HTTP with the execution's token: two calls on record and counted; the next attempt's server hears none."""
    log, path = tmp_path / "calls.log", tmp_path / "e0.tape"
    server = McpServer(command=(sys.executable, "-m", "tests.unit.env.mcp_world", str(log)), cwd=str(ROOT))
    async with gateway(Outside(mcp={"x": server})) as made:
        first = journal(path)
        way = made.admit("e0-a1", lambda: first)
        assert await talk(python_of("mcp"), way.token, way.mcp_url("x")) == SAID and way.gate.made == 2
        first.close()
        second = journal(path, is_replay=True)
        again = made.admit("e0-a2", lambda: second)
        assert await talk(python_of("mcp"), again.token, again.mcp_url("x")) == SAID
        assert again.gate.made == 0 and len(log.read_text().splitlines()) == 2
        second.close()


async def test_the_gateway_stands_in_front_of_the_librarys_server(python_of):
    """`through` is our client at the gateway, the library's server behind it."""
    async with gateway(Outside(mcp={"x": McpServer(command=(python_of("mcp"), SERVER))})) as made:
        mine = journal()
        way = made.admit("e0-a1", lambda: mine)
        await write_and_read(through(way))
        assert way.gate.made == 3


async def test_an_execution_uses_the_librarys_server_and_is_judged_by_its_state(stack, python_of, monkeypatch):
    """The example at the real rollout service: seed 2 is the word candle. A wrong name is an observation; then it is noted, and the model stops."""
    monkeypatch.setitem(os.environ, "MCP_PYTHON", python_of("mcp"))
    wrong, right = tool_text("write", name="no name", text="candle"), tool_text("write", name="word", text="candle")
    script = [{"when": "Note the word", "say": [wrong, right, "It is noted."]}]
    async with stack(script, [sys.executable, "-m", "examples.mcp_env.environment"], "notes") as running:
        ended = await running.ended(await running.dispatch(seed=2))
        assert (ended.ending, ended.reason, ended.evaluation.outcome) == ("completed", "stopped", 1.0), ended
        assert ended.evaluation.evidence == {"found": "candle"} and ended.external_calls == 2

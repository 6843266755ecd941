"""MCP servers that end, leave processes behind, or list without end (C4)."""

import os
import sys

import pytest

from gyre.env.mcp import McpClient, McpError, McpServer
from gyre.env.mcp import client as module
from gyre.env.outside import Outside
from gyre.errors import Unavailable
from tests.support import until
from tests.unit.env.test_mcp import through, world  # noqa: F401  a fixture
from tests.unit.env.test_outside import gateway, journal

SERVER = """
import json, subprocess, sys
for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    result = {"initialize": {"protocolVersion": "2025-06-18", "capabilities": CAN}, "tools/list": LISTED}[asked["method"]]
    print(json.dumps({"jsonrpc": "2.0", "id": [7], "result": {}}))
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), flush=True)
"""


def server(listed: str, before: str = "", can: dict | None = None) -> McpServer:
    """It also answers what nobody asked, under an id that is none. `before` is run first."""
    return McpServer(
        command=(sys.executable, "-c", before + SERVER.replace("LISTED", listed).replace("CAN", repr(can)))
    )


@pytest.mark.parametrize(
    "listed, said",
    [
        ('{"tools": [{"name": "a"}], "nextCursor": "again"}', "no end"),
        ('{"tools": [{"name": "a"}] * 3000, "nextCursor": str(asked["id"])}', "no end"),
        ('{"tools": [], "nextCursor": str(asked["id"])}', "no end"),
        ('{"tools": {"a": 1}}', "no list"), ('{"tools": ["a"]}', "no list"), ('{"tools": [{"title": "a"}]}', "without a name"),
    ],
)  # fmt: skip
async def test_a_list_without_end_or_sense_is_an_error(listed, said, monkeypatch):
    monkeypatch.setattr(module, "TOOLS_MAX", 50)
    async with McpClient(server(listed)) as client:
        with pytest.raises(Unavailable, match=said):
            await client.tools()


async def test_what_a_server_started_goes_with_it(tmp_path):
    """Also where it ends by itself as soon as it is told so: a browser's server has a browser."""
    note = tmp_path / "pid"
    before = (
        "import subprocess\n"
        f"open({str(note)!r}, 'w').write(str(subprocess.Popen(['sleep', '600'], stdout=subprocess.DEVNULL).pid))\n"
    )
    async with McpClient(server('{"tools": []}', before)) as client:
        assert await client.tools() == []
        helper = int(note.read_text())
        os.kill(helper, 0)

    def is_gone() -> bool:
        try:
            with open(f"/proc/{helper}/stat") as file:
                return file.read().rpartition(")")[2].split()[0] == "Z"
        except FileNotFoundError:
            return True

    await until(is_gone)


async def test_a_server_that_ended_is_started_again_by_the_next_message(world):  # noqa: F811
    """The call that it ended in is an error, on record as such; those after it are answered."""
    async with gateway(Outside(mcp={"x": world[0]})) as made:
        mine = journal(quota=9)
        way = made.admit("e0-a1", lambda: mine)
        async with McpClient(through(way)) as client:
            with pytest.raises(McpError, match="ended"):
                await client.call("exit", {})
            assert (await client.call("add", {"a": 1, "b": 1}))["content"][0]["text"] == "2"
            assert len(await client.tools()) == 3


async def test_a_client_is_told_of_nothing_that_does_not_pass():
    """It would ask for it: to be told of changes, to set a level of logs."""
    can = {"tools": {"listChanged": True}, "resources": {"subscribe": True}, "logging": {}, "tasks": {}, "x": 1}
    async with gateway(Outside(mcp={"x": server('{"tools": []}', can=can)})) as made:
        mine = journal()
        async with McpClient(through(made.admit("e0-a1", lambda: mine))) as client:
            assert client.about["capabilities"] == {"tools": {}, "resources": {}}

"""MCP both ways, and the tool gateway's MCP form (C4, C6). The same with the official library: tests/adapters/test_mcp_library.py."""

import asyncio
import contextlib
import json
import sys
import unittest.mock

import aiohttp
import pytest
from aiohttp import web

from gyre.env import Score, StepResult, Task, ToolCall
from gyre.env.mcp import McpClient, McpEnvironment, McpError, McpServer, ToolServer
from gyre.env.mcp.server import http_handler, reply_to
from gyre.env.outside import Outside
from gyre.env.outside import __main__ as outside
from gyre.env.shapes import step_result
from gyre.errors import InvalidInput, Unavailable
from tests.support import ROOT
from tests.unit.env.mcp_breaking import ERRORS, Breaking
from tests.unit.env.mcp_world import TOOLS
from tests.unit.env.test_outside import gateway, journal


@pytest.fixture
def world(tmp_path):
    """(the server, the log of its calls)."""
    log = tmp_path / "calls.log"
    log.touch()
    return McpServer(command=(sys.executable, "-m", "tests.unit.env.mcp_world", str(log)), cwd=str(ROOT)), log


@contextlib.asynccontextmanager
async def over_http(server: ToolServer):
    app = web.Application()
    app.router.add_post("/mcp", http_handler(server.handle))
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield McpServer(url=f"http://127.0.0.1:{runner.addresses[0][1]}/mcp")
    finally:
        await runner.cleanup()


async def test_a_server_is_asked_over_its_stdin_and_ends_with_it(world):
    server, log = world
    async with McpClient(server) as client:
        assert client.about["serverInfo"]["name"] == "adding"
        assert [tool["name"] for tool in await client.tools()] == ["add", "fail", "exit"]
        assert await client.call("add", {"a": 2, "b": 3}) == {
            "content": [{"type": "text", "text": "5"}],
            "isError": False,
        }
        assert (await client.call("fail", {}))["isError"]
        with pytest.raises(McpError, match="there is no tool fly"):
            await client.call("fly", {})
    assert log.read_text().splitlines() == ["add {'a': 2, 'b': 3}", "fail {}"]


async def test_answers_to_calls_at_once_are_told_apart_by_their_ids(world):
    async with McpClient(world[0]) as client:
        said = await asyncio.gather(*(client.call("add", {"a": n, "b": n}) for n in range(20)))
    assert [s["content"][0]["text"] for s in said] == [str(2 * n) for n in range(20)]


async def test_a_server_that_dies_or_never_starts_is_unavailable(world):
    async with McpClient(world[0]) as client:
        with pytest.raises(Unavailable, match="ended"):
            await client.call("exit", {})
        with pytest.raises(Unavailable, match="gone"):
            await client.call("add", {"a": 1, "b": 1})
    with pytest.raises(Unavailable, match="cannot be started"):
        await McpClient(McpServer(command=("/no/such/server",))).open()
    with pytest.raises(InvalidInput, match="a command or a url"):
        McpClient(McpServer())


async def test_tools_are_served_over_http_to_our_own_client():
    async def call(asked):
        return StepResult(content=f"{asked.name} {asked.arguments}")

    async with over_http(ToolServer("adding", TOOLS, call)) as server, McpClient(server) as client:
        assert len(await client.tools()) == 3
        assert (await client.call("add", {"a": 1}))["content"][0]["text"] == "add {'a': 1}"


@pytest.mark.parametrize(
    "message, number",
    [
        ([], -32600), ({"id": 1, "method": "ping"}, -32600), ({"jsonrpc": "2.0", "id": 1, "method": 3}, -32600),
        ({"jsonrpc": "2.0", "id": 1, "method": "fly"}, -32601), ({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": []}, -32602),
        ({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "add", "arguments": [1]}}, -32602),
    ],
)  # fmt: skip
async def test_what_is_no_request_is_answered_with_json_rpcs_own_errors(message, number):
    reply = await ToolServer("t", TOOLS, None).handle(message)
    assert reply["error"]["code"] == number and reply["error"]["message"]


class Adding(McpEnvironment):
    name = "adding"

    def first(self):
        return [{"role": "user", "content": "add"}]

    def score(self):
        return Score(outcome=1.0)


async def test_an_environments_tools_are_its_servers_tools(world):
    """One server: names as they are; two: with the server's name before. What the server says is the step's result, a wrong call an observation."""
    server, _ = world
    task = Task(task_id="t", task_type="t", seed=1)
    one = type("One", (Adding,), {"servers": {"x": server}})(task)
    try:
        assert await one.reset() == one.first()
        assert [tool["name"] for tool in await one.tools()] == ["add", "fail", "exit"]
        asked = ToolCall(call_id="c", name="add", arguments={"a": 2, "b": 2})
        assert step_result(await one.step(asked)) == StepResult(content="4")
        assert one.evidence().tool_versions["mcp:x"].startswith("adding ")
    finally:
        await one.close()
    two = type("Two", (Adding,), {"servers": {"x": server, "y": server}})(task)
    try:
        await two.reset()
        assert [tool["name"] for tool in await two.tools()][3] == "y__add"
        assert step_result(await two.step(ToolCall(call_id="c", name="y__fail", arguments={}))).error
    finally:
        await two.close()


def through(way, name: str = "x") -> McpServer:
    return McpServer(url=way.mcp_url(name), headers={"authorization": f"Bearer {way.token}"})


async def test_calls_through_the_gateway_are_recorded_counted_and_repeated(world, tmp_path):
    """C4, C6: the server hears each call once; the next attempt has the same answers, an error among them; a call that departs is refused."""
    server, log = world
    path = tmp_path / "e0.tape"
    async with gateway(Outside(mcp={"x": server})) as made:
        first = journal(path, quota=9)
        way = made.admit("e0-a1", lambda: first)
        async with McpClient(through(way)) as client:
            assert client.about["serverInfo"]["name"] == "adding" and len(await client.tools()) == 3
            live = [await client.call("add", {"a": 1, "b": 1}), await client.call("fail", {})]
        assert (way.gate.made, way.gate.quota_left) == (2, 7)
        await made.dismiss("e0-a1")
        first.close()
        second = journal(path, quota=9, is_replay=True)
        again = made.admit("e0-a2", lambda: second)
        async with McpClient(through(again)) as client:
            assert [await client.call("add", {"a": 1, "b": 1}), await client.call("fail", {})] == live
            assert log.read_text().splitlines() == ["add {'a': 1, 'b': 1}", "fail {}"] and again.gate.made == 0
        second.close()
        third = journal(path, quota=9, is_replay=True)
        departing = made.admit("e0-a3", lambda: third)
        async with McpClient(through(departing)) as client:
            with pytest.raises(McpError, match="replay_departed: call 1 departs"):
                await client.call("add", {"a": 1, "b": 2})
        third.close()


async def test_a_used_up_quota_is_a_tools_own_error_and_an_unknown_server_the_protocols(world):
    async with gateway(Outside(mcp={"x": world[0]})) as made:
        mine = journal(quota=1)
        way = made.admit("e0-a1", lambda: mine)
        async with McpClient(through(way)) as client:
            assert not (await client.call("add", {"a": 1, "b": 1}))["isError"]
            refused = await client.call("add", {"a": 1, "b": 1})
            assert refused["isError"] and "quota" in refused["content"][0]["text"]
        with pytest.raises(McpError, match="no MCP server y; servers: x"):
            await McpClient(through(way, "y")).open()
        async with aiohttp.ClientSession() as http, http.post(way.mcp_url("x"), json={}) as reply:
            assert reply.status == 407


BREAKING = McpServer(
    command=(sys.executable, "-m", "gyre.env.mcp", "tests.unit.env.mcp_breaking:Breaking"), cwd=str(ROOT)
)


@pytest.mark.parametrize("form", ["stdio", "http"])
async def test_a_tool_that_breaks_is_answered_under_its_requests_id_and_the_server_goes_on(form):
    """Our client takes no answer but by its id, so each error below was told apart."""
    world = Breaking(Task(task_id="t", task_type="t", seed=1))

    async def call(asked):
        return world.step(asked)

    async with contextlib.AsyncExitStack() as stack:
        server = BREAKING
        if form == "http":
            server = await stack.enter_async_context(over_http(ToolServer("breaking", world.tools(), call)))
        client = await stack.enter_async_context(McpClient(server))
        for name in ERRORS:
            with pytest.raises(McpError, match="boom") as raised:
                await client.call(name, {})
            assert raised.value.number == -32603
        with pytest.raises(McpError, match="there is no tool"):
            await client.call(["well"], {})
        assert (await client.call("well", {}))["content"][0]["text"] == "fine"


@pytest.mark.parametrize(
    ("text", "number", "code"),
    [
        (b"{", None, -32700),
        (b"[" * 100_000, None, -32700),
        (b'{"jsonrpc": "2.0", "id": 4, "method": "set"}', 4, -32603),
    ],
    ids=["torn", "deep", "no-json"],
)
async def test_what_cannot_be_read_or_said_is_answered_with_an_error(text, number, code):
    async def handle(message):
        return {"jsonrpc": "2.0", "id": message["id"], "result": {"a set": {1}}}

    said = json.loads(await reply_to(text, handle))
    assert (said["id"], said["error"]["code"]) == (number, code)


class Forgetful:
    """A server over HTTP that speaks an older version, and forgets its sessions after so many requests of each."""

    def __init__(self, requests: int) -> None:
        self._requests, self.left, self.heard, self.versions = requests, {}, [], []

    async def post(self, request: web.Request) -> web.Response:
        message, session = await request.json(), request.headers.get("mcp-session-id", "")
        self.heard.append(message["method"])
        self.versions.append(request.headers.get("mcp-protocol-version"))
        if message["method"] == "initialize":
            self.left[session := f"s{len(self.left)}"] = self._requests
            said = {"jsonrpc": "2.0", "id": message["id"], "result": {"protocolVersion": "2025-03-26"}}
            return web.json_response(said, headers={"mcp-session-id": session})
        if "id" not in message:
            return web.Response(status=202)
        if not self.left.get(session):
            return web.json_response({"error": "no session"}, status=404)
        self.left[session] -= 1
        return web.json_response({"jsonrpc": "2.0", "id": message["id"], "result": {"said": session}})


async def test_a_session_that_the_server_forgot_is_begun_anew_in_the_version_that_was_agreed():
    """The transport's 404: nothing was carried out, so the request is made again; of requests at once one begins the session."""
    server, app = Forgetful(requests=2), web.Application()
    app.router.add_post("/mcp", server.post)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        async with McpClient(McpServer(url=f"http://127.0.0.1:{runner.addresses[0][1]}/mcp")) as client:
            said = [await client.request("x") for _ in range(2)]
            said += await asyncio.gather(*(client.request("x") for _ in range(2)))
    finally:
        await runner.cleanup()
    assert [one["said"] for one in said] == ["s0", "s0", "s1", "s1"] and server.heard.count("initialize") == 2
    for method, spoken in zip(server.heard, server.versions, strict=True):
        assert spoken == (None if method == "initialize" else "2025-03-26")


async def test_a_relays_call_that_fails_is_answered_and_waits_as_long_as_its_client():
    """A call behind several long ones of its execution may wait longer than any one takes."""
    message = {"jsonrpc": "2.0", "id": 5, "method": "tools/call"}
    async with outside.session("e0:token") as http:
        assert http.timeout.total is None
        for error in (TimeoutError(), ConnectionResetError("gone"), ValueError("no JSON"), aiohttp.ClientError("x")):
            http._request = unittest.mock.AsyncMock(side_effect=error)
            reply = await outside.relayed(http, "http://127.0.0.1:1/", message)
            assert reply["id"] == 5 and "tool gateway: " in reply["error"]["message"]

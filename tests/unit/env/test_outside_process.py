"""The tool gateway as a process of its own, killed and started again; and the stdio end of its MCP form (C4, C6)."""

import asyncio
import contextlib
import json
import shlex
import sys

import aiohttp

from gyre.env.mcp import McpClient, McpServer
from gyre.env.outside.records import token_of
from tests.support import ROOT
from tests.unit.env.test_outside import Far

START_S = 240


@contextlib.asynccontextmanager
async def process(tmp_path, *arguments: str):
    """(the process, what it said of itself)."""
    command = [
        sys.executable,
        "-m",
        "gyre.env.outside",
        "serve",
        "--state",
        str(tmp_path),
        "--host",
        "127.0.0.1",
        *arguments,
    ]
    child = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE, cwd=ROOT)
    try:
        yield child, json.loads(await asyncio.wait_for(child.stdout.readline(), START_S))
    finally:
        with contextlib.suppress(ProcessLookupError):
            child.kill()
        await child.wait()


async def get(said, name: str, url: str):
    async with aiohttp.ClientSession() as http:
        async with http.get(url, proxy=f"http://{name}:{token_of(name, said['key'])}@{said['address']}") as reply:
            return reply.status, await reply.text()


async def usage(said, name: str, method: str = "GET", word: str = ""):
    """By the host, or with another `word` than its key."""
    headers = {"authorization": f"Bearer {name}:{word or said['key']}"}
    async with (
        aiohttp.ClientSession(headers=headers) as http,
        http.request(method, f"http://{said['address']}/usage") as reply,
    ):
        return await reply.json() if reply.status == 200 else reply.status


async def test_a_record_survives_kill_9_and_is_repeated_first(tmp_path):
    """Two executions, each with a quota of its own. After kill -9 the one that did not end is answered from its record; the ended one begins anew."""
    async with Far() as far:
        async with process(tmp_path, "--quota", "3") as (child, said):
            assert (await get(said, "e0", f"{far.base}/a")) == (200, "1: /a")
            assert (await get(said, "e1", f"{far.base}/b")) == (200, "2: /b")
            assert await usage(said, "e0") == {"calls": 1, "quota_left": 2, "departed": ""}
            assert (await usage(said, "e1", "DELETE"))["calls"] == 1
            child.kill()
            await child.wait()
        async with process(tmp_path, "--quota", "3") as (_, said):
            assert (await get(said, "e0", f"{far.base}/a")) == (200, "1: /a") and len(far.asked) == 2
            assert await usage(said, "e0") == {"calls": 0, "quota_left": 2, "departed": ""}
            assert (await get(said, "e1", f"{far.base}/b")) == (200, "3: /b")
            status, text = await get({**said, "key": "wrong"}, "e0", f"{far.base}/a")
            assert status == 407 and "which execution" in text
            status, text = await get(said, "-e0", f"{far.base}/a")
            assert status == 407


async def test_a_sandbox_is_one_execution_and_ends_none(tmp_path):
    """Its token is worthless for another one, and neither it nor an end gives a quota back; the host's key is no way out."""
    async with Far() as far, process(tmp_path, "--quota", "2") as (_, said):
        mine = token_of("e0", said["key"])
        for number in (1, 2):
            assert (await get(said, "e0", f"{far.base}/a")) == (200, f"{number}: /a")
        assert await usage(said, "e0", "DELETE", mine) == 403 and await usage(said, "e1", "GET", mine) == 407
        assert await usage(said, "e0", "GET", mine) == {"calls": 2, "quota_left": 0, "departed": ""}
        assert (await get(said, "e0", f"{far.base}/a"))[0] == 429
        assert (await usage(said, "e0", "DELETE"))["calls"] == 2
        assert (await get(said, "e0", f"{far.base}/a"))[0] == 429
        async with aiohttp.ClientSession() as http:
            for word in (mine, said["key"]):
                async with http.get(f"{far.base}/b", proxy=f"http://e1:{word}@{said['address']}") as reply:
                    assert reply.status == 407
        assert len(far.asked) == 2
        command = [sys.executable, "-m", "gyre.env.outside", "token", "e0", "--key", said["key"]]
        child = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE, cwd=ROOT)
        assert (await child.communicate())[0].decode() == f"{mine}\n" and said["key"] not in mine


async def test_an_mcp_client_that_only_starts_commands_reaches_a_server_through_the_gateway(tmp_path):
    """client ── stdio ──▶ relay ── HTTP ──▶ gateway ── stdio ──▶ server; the call counts as e0's."""
    log = tmp_path / "calls.log"
    server = shlex.join([sys.executable, "-m", "tests.unit.env.mcp_world", str(log)])
    async with process(tmp_path, "--mcp", f"x={server}") as (_, said):
        relay = (
            sys.executable,
            "-m",
            "gyre.env.outside",
            "mcp",
            "--url",
            f"http://{said['address']}/mcp/x",
            "--key",
            f"e0:{token_of('e0', said['key'])}",
        )
        async with McpClient(McpServer(command=relay, cwd=str(ROOT))) as client:
            assert (await client.call("add", {"a": 20, "b": 1}))["content"][0]["text"] == "21"
        assert (await usage(said, "e0"))["calls"] == 1


async def test_it_listens_beyond_loopback_only_with_a_key(tmp_path):
    command = [sys.executable, "-m", "gyre.env.outside", "serve", "--state", str(tmp_path), "--listen", "0.0.0.0"]
    child = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.PIPE, cwd=ROOT)
    _, errors = await asyncio.wait_for(child.communicate(), START_S)
    assert child.returncode == 2 and b"beyond loopback needs --key" in errors

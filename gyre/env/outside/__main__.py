"""The tool gateway as a process of its own, for sandboxes that no environment process of ours starts; and the stdio end of its MCP form.

python -m gyre.env.outside serve --state DIR [--port 8118] [--quota N] [--intercept DIR] [--host PATTERN …] [--mcp NAME=COMMAND …]
    prints one line of JSON: address, key, ca_file. The key is the host's and opens no way out; a sandbox is given its execution's token, as
    http://EXECUTION:TOKEN@127.0.0.1:PORT for its proxy. What it calls is on record in DIR/records/EXECUTION.outside.tape; when the gateway is
    started again the record is repeated first. GET /usage (Authorization: Basic EXECUTION:TOKEN, or EXECUTION:KEY) says calls and quota left;
    DELETE /usage, with the key only, ends an execution's record. What was used of its quota stays used.

python -m gyre.env.outside token EXECUTION --key KEY
    prints the execution's token: base64url(HMAC-SHA256(KEY, EXECUTION)) without padding

python -m gyre.env.outside mcp --url http://127.0.0.1:8118/mcp/NAME --key EXECUTION:TOKEN
    relays an MCP client's stdin and stdout, for clients that only start commands
"""

import argparse
import asyncio
import json
import os
import secrets
import shlex
import signal
import sys
from pathlib import Path
from typing import Any

import aiohttp

from gyre.env.mcp.client import McpServer
from gyre.env.mcp.server import serve_stdio
from gyre.env.outside.gateway import Outside, ToolGateway
from gyre.env.outside.proxy import Rules
from gyre.env.outside.records import Records, token_of
from gyre.env.recording import Redactor
from gyre.errors import GyreError

CONNECT_S = 10.0
LOOPBACK = ("127.0.0.1", "::1", "localhost")


async def serve(options: argparse.Namespace) -> None:
    """Until SIGTERM or Ctrl-C."""
    rules = Rules(hosts=tuple(options.host) or ("*",), bytes_max=options.bytes_max, call_s=options.call_s)
    servers = dict(_server(said) for said in options.mcp)
    outside = Outside(rules=rules, intercept=options.intercept, mcp=servers, listen=options.listen, port=options.port)
    key = options.key or os.environ.get("GYRE_TOOL_GATEWAY_KEY") or secrets.token_urlsafe(24)
    gateway = ToolGateway(outside)
    records = Records(gateway, Path(options.state), Redactor(options.redact), key, options.quota)
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    await gateway.start()
    ca_file = str(Path(options.intercept) / "ca.pem") if options.intercept else None
    print(json.dumps({"address": f"{options.listen}:{gateway.port}", "key": key, "ca_file": ca_file}), flush=True)
    try:
        await stopping.wait()
    finally:
        await gateway.close()
        records.close()


async def relay(options: argparse.Namespace) -> None:
    """Until stdin ends."""
    async with session(options.key or os.environ.get("GYRE_TOOL_GATEWAY_KEY", "")) as http:
        await serve_stdio(lambda message: relayed(http, options.url, message))


def session(key: str) -> aiohttp.ClientSession:
    """Of an execution many calls may wait, each as long as the gateway lets one take: how long is too long is the client's to say."""
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S)
    return aiohttp.ClientSession(headers={"authorization": f"Bearer {key}"}, timeout=timeout)


async def relayed(http: aiohttp.ClientSession, url: str, message: Any) -> dict[str, Any] | None:
    """The gateway's reply, or one that says why there is none."""
    try:
        async with http.post(url, json=message) as reply:
            if reply.status == 200:
                return await reply.json(content_type=None)
            return _unanswered(message, await reply.text())
    except (aiohttp.ClientError, OSError, ValueError) as error:
        return _unanswered(message, str(error) or type(error).__name__)


def _unanswered(message, text: str):
    """For a request that the gateway did not answer; nothing for a notification, which it takes without a word."""
    if not isinstance(message, dict) or "id" not in message or "method" not in message:
        return None
    return {
        "jsonrpc": "2.0",
        "id": message["id"],
        "error": {"code": -32603, "message": f"tool gateway: {text.strip()[:500]}"},
    }


def _server(said: str) -> tuple[str, McpServer]:
    name, _, where = said.partition("=")
    if not name or not where:
        raise argparse.ArgumentTypeError(f"--mcp needs NAME=COMMAND or NAME=URL, not {said!r}")
    return name, McpServer(url=where) if where.startswith(("http://", "https://")) else McpServer(
        command=tuple(shlex.split(where))
    )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m gyre.env.outside", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("serve", help="the gateway")
    one.add_argument("--state", required=True, help="folder of the records")
    one.add_argument("--listen", default="127.0.0.1", help="address; another than loopback needs --key")
    one.add_argument("--port", type=int, default=0, help="0: any free one")
    one.add_argument(
        "--key",
        default="",
        help="the host's, from which tokens are made (GYRE_TOOL_GATEWAY_KEY); made up where none is given",
    )
    one.add_argument("--quota", type=int, default=-1, help="calls of an execution in all; -1: any number")
    one.add_argument("--intercept", help="folder of the certificate authority: https is recorded, too")
    one.add_argument(
        "--host",
        action="append",
        default=[],
        help="pattern of public hosts that may be reached (all by default), or a name, address or network, also of this machine",
    )
    one.add_argument("--mcp", action="append", default=[], help="NAME=COMMAND or NAME=URL of an MCP server")
    one.add_argument("--redact", action="append", default=[], help="regular expression of further secrets")
    one.add_argument("--bytes-max", type=int, default=Rules().bytes_max, help="of a request and of a reply")
    one.add_argument("--call-s", type=float, default=Rules().call_s, help="seconds for one call")
    other = commands.add_parser("mcp", help="an MCP client's stdin and stdout, relayed to a gateway")
    other.add_argument("--url", required=True, help="http://HOST:PORT/mcp/NAME")
    other.add_argument(
        "--key", default="", help="EXECUTION:TOKEN, or an environment's way_out.token; or GYRE_TOOL_GATEWAY_KEY"
    )
    third = commands.add_parser("token", help="an execution's token, for its sandbox")
    third.add_argument("execution")
    third.add_argument("--key", default=os.environ.get("GYRE_TOOL_GATEWAY_KEY", ""), help="or GYRE_TOOL_GATEWAY_KEY")
    options = parser.parse_args()
    if options.command == "token" and not options.key:
        parser.error("token needs the gateway's key: --key, or GYRE_TOOL_GATEWAY_KEY")
    if options.command == "serve" and options.listen not in LOOPBACK and not options.key:
        parser.error("--listen beyond loopback needs --key")
    return options


if __name__ == "__main__":
    given = _options()
    if given.command == "token":
        print(token_of(given.execution, given.key))
        sys.exit(0)
    try:
        asyncio.run((serve if given.command == "serve" else relay)(given))
    except (GyreError, argparse.ArgumentTypeError) as error:
        print(f"tool gateway: {error}", file=sys.stderr)
        sys.exit(2)

"""`python -m gyre.env.mcp MODULE:CLASS [--seed N]`: one world of an environment, its tools as an MCP server over stdin and stdout."""

import argparse
import asyncio
import importlib
import inspect
import json
import os
import sys

import msgspec

from gyre.env.environment import Task
from gyre.env.mcp.server import ToolServer, serve_stdio


async def run(path: str, seed: int, payload: str) -> None:
    module, _, name = path.partition(":")
    sys.path.insert(0, os.getcwd())
    task = Task(task_id="by-hand", task_type="by-hand", seed=seed, payload=json.loads(payload))
    world = getattr(importlib.import_module(module), name)(task)
    try:
        for message in await _awaited(world.reset()):
            print(f"{message['role']}: {message['content']}", file=sys.stderr)
        server = ToolServer(world.name, await _awaited(world.tools()), lambda call: _stepped(world, call))
        await serve_stdio(server.handle)
        print(msgspec.json.encode(await _awaited(world.score())).decode(), file=sys.stderr)
    finally:
        await _awaited(world.close())


async def _stepped(world, call):
    return await _awaited(world.step(call))


async def _awaited(said):
    return await said if inspect.isawaitable(said) else said


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m gyre.env.mcp", description=__doc__)
    parser.add_argument("environment", help="MODULE:CLASS of a gyre.env.Environment")
    parser.add_argument("--seed", type=int, default=0, help="of the task")
    parser.add_argument("--payload", default="{}", help="of the task, a JSON object")
    options = parser.parse_args()
    asyncio.run(run(options.environment, options.seed, options.payload))

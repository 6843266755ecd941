"""The OpenEnv adapter at a server of the real library, through the real rollout service (the example of examples/openenv_env)."""

import asyncio
import contextlib
import os
import sys

import pytest

from gyre.bus.server import free_port, wait_for_port
from tests.adapters.stack import tool_text
from tests.support import ROOT

pytestmark = pytest.mark.timeout(600)


@contextlib.asynccontextmanager
async def openenv_server(python: str):
    """Its URL."""
    port = free_port()
    child = await asyncio.create_subprocess_exec(python, "examples/openenv_env/server.py", str(port), cwd=ROOT)
    try:
        await wait_for_port(port, 120, lambda: child.returncode is None)
        yield f"http://127.0.0.1:{port}"
    finally:
        with contextlib.suppress(ProcessLookupError):
            child.kill()
        await child.wait()


async def test_an_openenv_world_is_played_and_judged_by_its_rewards(stack, python_of, monkeypatch):
    """Seed 14: the number is 4. Too high; a number that the server's schema refuses in words; right: its reward of 1 is the outcome."""
    script = [
        {
            "when": "My number is",
            "say": [tool_text("act", number=7), tool_text("act", number=99), tool_text("act", number=4)],
        }
    ]
    async with openenv_server(python_of("openenv")) as url:
        monkeypatch.setitem(os.environ, "OPENENV_URL", url)
        command = [sys.executable, "-m", "examples.openenv_env.environment"]
        async with stack(script, command, "openenv-guessing") as running:
            name = await running.dispatch(seed=14)
            ended = await running.ended(name)
            assert (ended.ending, ended.reason, ended.evaluation.outcome) == ("completed", "submitted", 1.0), ended
            assert ended.evaluation.evidence == {"reward": 1.0, "over": True} and (
                ended.turns,
                ended.external_calls,
            ) == (3, 3)
            at_once = [await running.dispatch(seed=4) for _ in range(3)]
            for ended in [await running.ended(name) for name in at_once]:
                assert (ended.ending, ended.evaluation.outcome) == ("completed", 1.0)

"""A run with a real bus, a real gateway process and real cells with a tiny random model; tests speak for the other services."""

import asyncio
from pathlib import Path

import pytest
import pytest_asyncio

from examples.repair.model import make_model
from tests.support import TestRun

from .driver import Driver

SETTINGS = {
    "scheduler": {"cells": 2},
    "rollout": {
        "lease_s": 6.0, "context_max": 512, "slots": 8, "request_bytes_max": 64 * 1024,
        "role_rules": [{"name": "test/planner", "role": "side", "system": "^Plan only"}],
    },
    "tasks": {"context_tokens_max": 512},
}  # fmt: skip


def texts():
    yield from ["hello world", '<tool_call>\n{"name": "read_file", "arguments": {"path": "a.py"}}\n</tool_call>'] * 50


@pytest.fixture(scope="session")
def model_dir(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("model") / "model"
    make_model(str(folder), 1, texts(), layers=4, hidden=192)
    return folder


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def system(tmp_path_factory, model_dir):
    """Everything up, two cells serving; one for all tests of a module, for a cell takes seconds to start."""
    run = TestRun(tmp_path_factory.mktemp("run"), SETTINGS | {"model": {"path": str(model_dir)}})
    async with run:
        cells = await asyncio.gather(
            *(run.start("services.rollout.cell", "--cell", str(i), endpoint=f"cell-{i}") for i in range(2))
        )
        gateway = await run.start("services.rollout", endpoint="rollout")
        async with Driver(run, gateway, list(cells)) as made:
            yield made


@pytest_asyncio.fixture(loop_scope="module")
async def driver(system):
    """With an environment of the test's own, and both cells serving again afterwards."""
    await system.new_environment()
    yield system
    await system.environment.detach()
    await system.all_serving()

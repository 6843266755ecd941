"""One running system for all tests of a module: a cell takes seconds to start."""

from pathlib import Path

import pytest
import pytest_asyncio

from . import model
from .system import System


@pytest.fixture(scope="session")
def model_dir(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("says") / "model"
    model.make(folder)
    return folder


@pytest_asyncio.fixture(scope="package", loop_scope="package")
async def system(tmp_path_factory, model_dir):
    async with System(tmp_path_factory.mktemp("run"), model_dir) as made:
        yield made

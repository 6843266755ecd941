"""One warm-started model for all slow tests."""

import asyncio
from pathlib import Path

import pytest

from gyre.cli.options import load_config
from gyre.cli.training.model import prepare
from gyre.run_folder import RunFolder
from tests.slow.support import CONFIG

OVERRIDES = (
    'model.demonstrations=["{python}", "-m", "examples.repair.demonstrations", "--out", "{out}", "--seed", "{seed}", "--count", "1200"]',
    "model.warmstart_epochs=3.0",
    "model.warmstart_s=1500.0",
)
"""Half a minute on two quiet cores. Far from the example's own warm start, but it calls tools and meets milestones, so groups have gradients."""


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = RunFolder(tmp_path_factory.mktemp("model"))
    folder.make()
    return asyncio.run(prepare(load_config(CONFIG, OVERRIDES), folder, print))

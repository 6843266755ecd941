"""Tests that need real harnesses: run by `make test-harness`, which installs them and says where they are; skipped elsewhere."""

import os
from pathlib import Path

import pytest

from examples.repair.model import make_tokenizer
from tests.support import ROOT

HARNESSES = "GYRE_HARNESSES"
"""Folders with the harnesses' programs, as in PATH."""
CALLS = ROOT / "tests" / "data" / "harness_calls"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.harness)
            if not os.environ.get(HARNESSES):
                item.add_marker(pytest.mark.skip(reason=f"needs harnesses: make test-harness, or {HARNESSES}"))


@pytest.fixture(scope="session")
def programs() -> str:
    """Where programs are looked for."""
    return f"{os.environ[HARNESSES]}:{os.environ['PATH']}"


@pytest.fixture(scope="session")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model without weights: a tokenizer trained on such calls, and its chat template."""
    folder = tmp_path_factory.mktemp("model") / "model"
    make_tokenizer((file.read_text() for file in sorted(CALLS.glob("*.json"))), 1000).save_pretrained(folder)
    return folder

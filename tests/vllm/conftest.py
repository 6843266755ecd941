"""One vLLM for all tests here: the repair example's model in two versions. Skipped without GYRE_VLLM, which `make test-vllm` sets."""

import os
from pathlib import Path

import msgspec
import pytest
import torch

HERE = Path(__file__).parent
PYTHON = os.environ.get("GYRE_VLLM", "")
SLOTS, CONTEXT_MAX = 16, 640


def pytest_collection_modifyitems(items):
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.vllm)
            if not PYTHON:
                item.add_marker(pytest.mark.skip(reason="needs vLLM: make test-vllm"))


@pytest.fixture(scope="session")
def models(tmp_path_factory) -> list[Path]:
    """Directories of versions 0 and 1: the example's model, and the same with every weight changed."""
    from examples.repair.model import make_model
    from tests.vllm.reference import change

    torch.set_num_threads(1)
    root = tmp_path_factory.mktemp("models")
    make_model(str(root / "0"), seed=1)
    change(root / "0", root / "1", seed=2)
    return [root / "0", root / "1"]


@pytest.fixture(scope="session")
def policies(models):
    """The same versions as the trainer computes them."""
    from services.trainer.model import Policy

    return [Policy(path) for path in models]


@pytest.fixture(scope="session")
def fault(tmp_path_factory) -> Path:
    """Write `half`, `lossy` or `hang` into it: the next update fails like that."""
    return tmp_path_factory.mktemp("fault") / "fault"


@pytest.fixture(scope="session")
def config(fault):
    from gyre.config.sections import VllmConfig

    return VllmConfig(
        python=PYTHON, start_s=1200.0, update_s=60.0, stream_tokens=1, variables={"GYRE_TEST_FAULT": str(fault)}
    )


@pytest.fixture(scope="session")
def shared_engine(models, config, tmp_path_factory):
    from services.rollout.engine.vllm.engine import VllmEngine
    from services.rollout.engine.vllm.process import VllmProcess

    process = VllmProcess(
        models[0], SLOTS, CONTEXT_MAX, config, "cpu", 1, tmp_path_factory.mktemp("logs") / "vllm.log",
        plugins=(HERE / "plugins",), extension="faulty.Extension",
    )  # fmt: skip
    made = VllmEngine(models[0], SLOTS, CONTEXT_MAX, config, process)
    yield made
    made.close()


@pytest.fixture
def engine(shared_engine, models, config, fault):
    """Loaded with version 0."""
    fault.unlink(missing_ok=True)
    shared_engine.load(models[0], 0)
    return shared_engine


@pytest.fixture
def by_gloo(engine, config, monkeypatch):
    """The same engine, with transfers by gloo."""
    monkeypatch.setattr(engine._updater, "_config", msgspec.structs.replace(config, transfer="gloo"))
    return engine

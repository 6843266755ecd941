"""Environments of other libraries and languages, each in an environment of its own that a make target installs; skipped elsewhere.

| variable | says where is | set by |
|---|---|---|
| GYRE_TYPESCRIPT | the built TypeScript example | make test-typescript |
| GYRE_ADAPTERS | the folder of one virtual environment for each library | make test-adapters |
"""

import os
from pathlib import Path

import pytest

from tests.adapters.stack import Stack, make_model


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.adapters)
            needed = "GYRE_TYPESCRIPT" if "typescript" in item.path.name else "GYRE_ADAPTERS"
            if not os.environ.get(needed):
                target = "test-typescript" if "typescript" in item.path.name else "test-adapters"
                item.add_marker(pytest.mark.skip(reason=f"needs what `make {target}` installs, or {needed}"))


@pytest.fixture(scope="session")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("model") / "model")


@pytest.fixture
def stack(tmp_path: Path, model_dir: Path):
    """`async with stack(script, command) as running`."""

    def made(script: list[dict], command: list[str], environment: str) -> Stack:
        return Stack(tmp_path, model_dir, script, command, environment)

    return made


@pytest.fixture(scope="session")
def python_of():
    """The interpreter of a library's own virtual environment."""

    def of(library: str) -> str:
        return str(Path(os.environ["GYRE_ADAPTERS"]).resolve() / library / "bin" / "python")

    return of

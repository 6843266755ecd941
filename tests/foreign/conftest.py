"""Other people's programs, in an environment of their own that `make test-foreign` makes; without it these tests are skipped."""

import os
from pathlib import Path

import pytest

from tests.support import ROOT


@pytest.fixture(scope="session")
def foreign() -> Path:
    """The environment's bin/."""
    found = Path(os.environ.get("GYRE_FOREIGN", "")) if os.environ.get("GYRE_FOREIGN") else None
    if found is None:
        pytest.skip("`make test-foreign` names an environment with foreign programs")
    bin_folder = (ROOT / found).resolve() / "bin"
    assert (bin_folder / "phoenix").exists(), f"no phoenix in {bin_folder}"
    return bin_folder

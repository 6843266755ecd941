import pytest

from examples.repair.sandbox import Sandbox


@pytest.fixture(scope="session")
def sandbox():
    """One fork server for all tests of this folder."""
    shared = Sandbox()
    yield shared
    shared.close()

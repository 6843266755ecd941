"""A run that is over, on whose books the commands are tried."""

import pytest

from gyre.config import store
from gyre.run_folder import RunFolder
from tests.unit.ledger.ledger_history import config, history, kept_books


@pytest.fixture
def run(tmp_path) -> RunFolder:
    made = RunFolder(tmp_path / "run")
    made.make()
    store(config(), made.config_file)
    kept_books(made.database, history()).close()
    return made

"""A run's folder whose books hold given facts and spans, as a finished run leaves it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gyre.config import store as store_config
from gyre.config.load import parse
from gyre.records import Fact
from gyre.run_folder import RunFolder
from services.ledger.storage import Database, Writer
from services.ledger.storage.writer import _Job

FACTS_AT_ONCE = 5_000


def kept(
    root: Path, facts: Sequence[Fact], spans: Sequence[dict[str, Any]] = (), name: str = "t", model: str = "m"
) -> RunFolder:
    folder = RunFolder(root)
    folder.make()
    config = parse({"run": {"name": name}, "model": {"path": model}}, "test")
    store_config(config, folder.config_file)
    folder.write_endpoints({})
    database = Database(f"sqlite:///{folder.database}")
    database.migrate()
    writer = Writer(database, name)
    for begin in range(0, len(facts), FACTS_AT_ONCE):
        numbered = [(fact, begin + index + 1) for index, fact in enumerate(facts[begin : begin + FACTS_AT_ONCE])]
        with database.writing.begin() as connection:
            writer._apply(connection, _Job(numbered, (), None))
    if spans:
        with database.writing.begin() as connection:
            writer._apply(connection, _Job((), spans, None))
    database.close()
    return folder

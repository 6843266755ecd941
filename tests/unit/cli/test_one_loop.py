"""A command that asks several services has one event loop for all of them (E)."""

import asyncio
import re

from click.testing import CliRunner

from gyre.cli import asking, queries
from gyre.errors import Unavailable
from gyre.run_folder import RunFolder
from tests.support import ROOT

LONG_LIVED = {"dry_run.py", "train.py", "up.py"}
"""Commands that are one program from begin to end."""


def test_a_command_asks_everybody_in_one_loop(monkeypatch, tmp_path):
    """gRPC's poller of a loop that is closed complains into the next: `gyre queues` of a run that is over printed a traceback."""
    loops = []

    async def scheduler_is_gone(*_):
        loops.append(asyncio.get_running_loop())
        raise Unavailable("gone")

    async def ledger(*_):
        loops.append(asyncio.get_running_loop())
        return {"tiers": {}, "curves": {}}

    monkeypatch.setattr(queries, "find_run", lambda _: RunFolder(tmp_path))
    monkeypatch.setattr(queries, "asked", scheduler_is_gone)
    monkeypatch.setattr(asking, "_ask_live", ledger)
    for _ in range(2):
        assert CliRunner().invoke(queries.queues, ["--json"]).exit_code == 0
    assert len(loops) == 4 and len(set(loops)) == 1 and not loops[0].is_closed()


def test_no_question_makes_a_loop_of_its_own():
    made = {
        path.name
        for path in (ROOT / "gyre" / "cli").rglob("*.py")
        if re.search(r"asyncio\.run\(|new_event_loop", path.read_text())
    }
    assert made == LONG_LIVED

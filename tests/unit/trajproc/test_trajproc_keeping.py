"""Trees of samples are kept beside the training, and shown (B3)."""

import asyncio
import json
import os
import subprocess
import sys

from click.testing import CliRunner

from gyre.bus import BlobStore
from gyre.cli.tree import lines
from gyre.cli.tree import tree as command
from gyre.clock import ManualClock
from gyre.errors import NotFound
from services.trajproc import app as shell
from services.trajproc import keeping as module
from services.trajproc.core.fold import Processor
from services.trajproc.keeping import Keeping
from services.trajproc.store import TreeReader
from services.trajproc.view import described
from tests.support import TestRun
from tests.unit.trajproc.builders import PAYLOAD, call, config, dispatched, ended, execution, leased
from tests.unit.trajproc.test_trajproc_shell import FakeBus

A = "g000001"
CALLS = [
    call([1, 2], [3, 4], execution=f"{A}-e0"),
    call([5], [6], index=1, parent=0, cut=4, execution=f"{A}-e0", version=1),
    call([7], [8, 9], index=2, parent=0, cut=3, execution=f"{A}-e0", role="side", delivered=False),
]


async def said(folder, keeping=None):
    """One group through the shell; what the keeper was given is written before this returns."""
    keeping = keeping or Keeping(folder)
    app = shell.App(
        Processor(config(), PAYLOAD), FakeBus(), BlobStore(folder / "blobs"), ManualClock(1.0), keep=keeping.keep
    )
    app.processor.published.add(1)
    mine = [leased(A, 0), *CALLS, ended(A, 0, 1.0, turns=3)]
    for fact in [dispatched(A, 2), *mine, *execution(A, 1, 0.0)]:
        app.processor.fold(fact)
    await app._act()
    task = asyncio.create_task(keeping.run())
    await asyncio.sleep(0)
    task.cancel()  # what waits is written all the same
    await asyncio.gather(task, return_exceptions=True)
    return keeping


async def test_every_sample_that_is_said_has_its_tree_on_disk(tmp_path):
    """B3: both members' trees, though the processor forgot them; the first's context of call 1 is [1…6]."""
    keeping = await said(tmp_path)
    reader = TreeReader(tmp_path)
    assert (keeping.kept, keeping.lost, reader.samples()) == (2, 0, [f"{A}-e0-a1", f"{A}-e1-a1"])
    assert reader.get(f"{A}-e0-a1").context(1).tolist() == [1, 2, 3, 4, 5, 6]


async def test_a_disk_that_fails_costs_trees_and_nothing_else(tmp_path):
    """B3: the folder is a file: two trees are lost and counted, and every sample was said all the same."""
    (tmp_path / "trees").write_text("")
    keeping = await said(tmp_path, Keeping(tmp_path / "trees"))
    assert (keeping.kept, keeping.lost) == (0, 2)


async def test_a_disk_that_is_too_slow_costs_trees_and_no_waiting(tmp_path, monkeypatch):
    """B3: room for nine tokens, the first tree has nine and the second five, and nothing is written yet: it is lost and counted."""
    monkeypatch.setattr(module, "WAITING_TOKENS_MAX", 9)
    keeping = await said(tmp_path)
    assert (keeping.kept, keeping.lost) == (1, 1)


async def test_a_tree_is_told_node_by_node_and_shown_with_its_branches(tmp_path):
    """B3: 4 is trained under call 1 and not under the side call, whose reply never arrived; 2 + 2 + 1 + 1 tokens on one path, 1 + 2 on another."""
    await said(tmp_path)
    found = json.loads(json.dumps(described(TreeReader(tmp_path).get(f"{A}-e0-a1"))))
    assert (found["tokens_unique"], found["tokens_flat"], found["tokens_sampled"]) == (9, 6 + 6, 5)
    assert [(node["tokens"], node["call"], node["versions"], node["chosen"]) for node in found["nodes"]] == [
        (2, -1, [], True), (1, 0, [0, 0], True), (1, 0, [0, 0], True), (1, -1, [], True), (1, 1, [1, 1], True),
        (1, -1, [], False), (2, 2, [0, 0], False),
    ]  # fmt: skip
    assert lines(found) == [
        "●      2 tokens at 0: prompt",
        "●      1 tokens at 2: call 0, main, version 0",
        "  ●      1 tokens at 3: call 0, main, version 0  ◂ end of call 0 main",
        "  ●      1 tokens at 4: prompt",
        "  ●      1 tokens at 5: call 1, main, version 1  ◂ end of call 1 main",
        "  ○      1 tokens at 3: prompt",
        "  ○      2 tokens at 4: call 2, side, version 0  ◂ end of call 2 side, never delivered",
    ]


def test_the_command_reads_the_runs_folder(tmp_path):
    """B3: `gyre tree` on a run that is over, and on a sample that there is not."""
    run = TestRun(tmp_path)
    asyncio.run(said(run.folder.trees))
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    child = subprocess.run(
        [sys.executable, "-m", "services.trajproc", "--run", str(tmp_path), "--print=tree", f"--name={A}-e1-a1"],
        capture_output=True, text=True, env=env, timeout=240,
    )  # fmt: skip
    assert json.loads(child.stdout)["sample_id"] == f"{A}-e1-a1", child.stderr
    result = CliRunner().invoke(command, [f"{A}-e9-a1", "--run", str(tmp_path)])
    assert isinstance(result.exception, NotFound) and "no tree of g000001-e9-a1" in str(result.exception)


def test_what_is_no_question_is_said(tmp_path):
    """E: an error of the user's, exit code 2, and what could be asked."""
    child = subprocess.run(
        [sys.executable, "-m", "services.trajproc", "--run", str(TestRun(tmp_path).folder.root), "--print=graph", "--name=x"],
        capture_output=True, text=True, timeout=240,
    )  # fmt: skip
    assert child.returncode == 2 and "ask tree or tokens" in child.stderr

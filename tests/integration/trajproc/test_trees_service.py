"""Trees through the processor as a process: kept when samples are said, over a kill -9, and shown by `gyre tree` when the run is over (B3)."""

import json
import subprocess
import sys

from gyre import ids
from gyre import records as r
from gyre.run_folder import RunFolder
from services.trajproc.store import TreeReader
from tests.integration.trajproc.others import watching
from tests.support import ROOT, TestRun
from tests.unit.trajproc.builders import call, dispatched, ended, execution, opened, started, submitted

SETTINGS = {"trajproc": {"turns_per_step": 100, "milestone_share": 0.0}}
FIRST, SECOND = ids.group_id(0), ids.group_id(1)


def shown(folder: RunFolder, sample: str) -> dict:
    command = [sys.executable, "-m", "gyre.cli.main", "tree", sample, "--run", str(folder.root), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=240)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


async def test_trees_outlive_their_executions_and_the_processor(tmp_path):
    """B3: records out of order; after a kill the second group's trees are appended behind the first's. Trees say what SampleReady said."""
    name = ids.execution_id(FIRST, 0)
    calls = [call([1, 2, 3], [4, 5], execution=name), call([6], [7], index=1, parent=0, cut=5, execution=name)]
    async with TestRun(tmp_path, SETTINGS) as run, watching(run) as others:
        process = await run.start("services.trajproc", endpoint="trajproc")
        await others.say(started(), submitted(FIRST), submitted(SECOND), dispatched(FIRST, 2), opened(0))
        await others.say(*reversed(calls), ended(FIRST, 0, 1.0, turns=2), *execution(FIRST, 1, 0.0))
        await others.until(lambda: len(others.of(r.SampleReady)) == 2)
        await others.until(
            lambda: (run.folder.trees / "trees.log").exists() and len(TreeReader(run.folder.trees).samples()) == 2
        )
        process.kill()
        await process.wait()
        await run.start("services.trajproc", endpoint="trajproc")
        await others.say(dispatched(SECOND, 2), *execution(SECOND, 0, 1.0), *execution(SECOND, 1, 0.0))
        await others.until(lambda: len(others.of(r.SampleReady)) == 4)
        await others.until(lambda: len(TreeReader(run.folder.trees).samples()) == 4)
        ready = {fact.sample_id: fact for fact in others.of(r.SampleReady)}
    for sample, fact in ready.items():
        found = TreeReader(tmp_path / "trees").get(sample)
        assert (found.tokens_unique, found.tokens_flat, found.tokens_sampled) == (
            fact.tokens_tree, fact.tokens_flat, fact.targets_sampled,
        )  # fmt: skip
    answer = shown(RunFolder(tmp_path), ids.sample_id(name, 1))
    assert (answer["tokens_unique"], [node["tokens"] for node in answer["nodes"]]) == (7, [3, 2, 1, 1])
    assert TreeReader(tmp_path / "trees").get(ids.sample_id(name, 1)).context(1).tolist() == [1, 2, 3, 4, 5, 6, 7]

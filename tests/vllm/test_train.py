"""The repair job on vLLM cells, whole runs of `gyre train` (A4, A6)."""

import asyncio
import json
from pathlib import Path

import pytest

from gyre import records as r
from gyre.cli.options import load_config
from gyre.cli.training.model import prepare
from gyre.records import array
from gyre.run_folder import RunFolder
from tests.slow.support import Train
from tests.support import ROOT
from tests.vllm.conftest import PYTHON

CONFIG = ROOT / "examples" / "repair" / "vllm.toml"
WARM = (
    'model.demonstrations=["{python}", "-m", "examples.repair.demonstrations", "--out", "{out}", "--seed", "{seed}", "--count", "1200"]',
    "model.warmstart_epochs=3.0", "model.warmstart_s=300.0",
)  # fmt: skip
STEPS = 4
MODES = {
    "async": {},
    "elastic": {
        "scheduler.mode": "elastic", "scheduler.cells": 1, "scheduler.training_cells": 0, "scheduler.standalone_cells": 0,
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    folder = RunFolder(tmp_path_factory.mktemp("model"))
    folder.make()
    return asyncio.run(prepare(load_config(CONFIG, WARM), folder, print))


@pytest.mark.parametrize("mode", MODES)
async def test_the_repair_job_trains_on_vllm_cells(model, tmp_path, mode):
    """A4, A6, A9: `async` takes each version with calls in flight, `elastic` gives its only cell to the trainer and back; the audit holds."""
    settings = {
        "run.name": "repair",
        "run.steps": STEPS,
        "rollout.vllm.python": PYTHON,
        "rollout.vllm.start_s": 1200.0,
        **MODES[mode],
    }
    async with Train(tmp_path / "run", model, settings, config=CONFIG) as run:
        summary = await run.finish(1500)
    assert summary["steps"] == STEPS
    assert summary["trained"] > 0
    assert all(summary["audit"].values()), summary["audit"]
    published = {fact.version for fact in run.of(r.WeightsPublished)}
    calls = run.of(r.CallRecorded)
    sampled = {int(version) for call in calls for version in array(call.versions, "int32")}
    assert {cell for call in calls for cell in call.cells} == {"cell-1" if mode == "async" else "cell-0"}
    # the last version is published when the run is over
    assert len(sampled) >= 2
    assert sampled <= {0, *published}
    if mode == "elastic":
        assert summary["role_changes"] >= 2
    logs = (tmp_path / "run" / "logs").glob("vllm-*.log")
    assert len(list(logs)) == 1, json.dumps(summary)

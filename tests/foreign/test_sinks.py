"""Step figures in the tools of others (E): W&B offline and MLflow on SQLite, both real, in their own environment."""

import asyncio
import os
import sqlite3

import pytest

from tests.support import ROOT

pytestmark = pytest.mark.foreign

WORK = """
import sys
from pathlib import Path
from gyre import records as r
from services.ledger.sinks import open_sinks
folder = Path(sys.argv[1])
for steps in (range(0, 3), range(3, 5)):  # the ledger was started anew in between
    sinks = open_sinks(["tensorboard", "wandb", "mlflow"], "r1", folder)
    for step in steps:
        sinks.see(r.StepUpdated(step=step, version=step + 1, burst=step, sample_ids=["a", "b"], micro_cells={},
                                metrics={"loss": 0.5 / (step + 1)}, opened_at_s=100.0 + step, at_s=101.0 + step))
    sinks.close()
    assert sinks.lost == 0, sinks.lost
"""


async def test_every_step_reaches_wandb_and_mlflow_through_a_restart(foreign, tmp_path):
    """Five steps, the ledger started anew after three: one MLflow run has five losses; W&B's offline files are there."""
    away = {name: value for name, value in os.environ.items() if not name.startswith(("WANDB", "MLFLOW"))}
    process = await asyncio.create_subprocess_exec(
        foreign / "python", "-c", WORK, str(tmp_path), cwd=ROOT, env={**away, "PYTHONPATH": str(ROOT)},
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    out, _ = await process.communicate()
    assert process.returncode == 0, out.decode()[-3000:]
    with sqlite3.connect(tmp_path / "mlflow.db") as database:
        losses = database.execute("SELECT step, value FROM metrics WHERE key = 'train/loss' ORDER BY step").fetchall()
        (runs,) = database.execute("SELECT count(DISTINCT run_uuid) FROM metrics").fetchone()
    assert losses == [(step, 0.5 / (step + 1)) for step in range(5)]
    assert runs == 1
    assert list((tmp_path / "wandb").glob("offline-run-*/run-r1.wandb"))
    assert list((tmp_path / "tensorboard").glob("events.out.tfevents.*"))

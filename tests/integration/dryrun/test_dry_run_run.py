"""`gyre dry-run` as a user starts it: real services and bus, emulated cells, environments and trainers."""

import contextlib
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.support import POLL_S, ROOT, until_gone

CONFIG = """
[run]
name = "small"
steps = 2
[scheduler]
cells = 2
cell_capacity = 8
groups_per_step = 2
group_size = 2
steps_per_publish = 2
extra_depth_steps = 0.0
[rollout]
slots = 8
[trajproc]
turns_per_step = 5
wait_s = 3600000.0
[tasks]
wall_s = 864000.0
[emulation]
time_scale = 1800.0
work_median_s = 3000.0
calls = 2
group_training_s = 1800.0
"""


TWO_AT_ONCE = """
variants_at_once = 2
[[emulation.variants]]
name = "small"
role = "ours"
[[emulation.variants]]
name = "other"
"""


@pytest.fixture
def started(request, tmp_path):
    """The command, its folder being tmp_path/run; whatever is left of it is killed at the end. Indirectly: what stands behind the configuration."""
    (tmp_path / "small.toml").write_text(CONFIG + getattr(request, "param", ""))
    command = [
        sys.executable,
        "-m",
        "gyre.cli.main",
        "dry-run",
        str(tmp_path / "small.toml"),
        "--run-dir",
        str(tmp_path / "run"),
        "--json",
    ]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    yield process
    process.kill()
    for left in of_run(tmp_path):
        with contextlib.suppress(psutil.NoSuchProcess):
            left.kill()
    process.communicate()


def of_run(folder: Path) -> list[psutil.Process]:
    """Processes that were started for the run in `folder`."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        if any(str(folder / "run") in word for word in process.info["cmdline"] or []):
            found.append(process)
    return found


def test_a_small_configuration_runs_to_its_end_and_is_compared_with_the_simulator(started, tmp_path):
    """Dry run: both steps of the one burst, at the mean staleness that the law gives, every audit passed, nothing left running."""
    output, said = started.communicate(timeout=360)
    assert started.returncode == 0, said
    result = json.loads(output)
    (row,) = result["variants"]
    assert row["staleness_mean"] == 0.5 == result["staleness_law"] and row["groups_per_step"] == 2.0
    assert row["audit"] == [] and row["failed"] == 0 and row["role_changes"] >= 2
    assert row["simulated_h"] > 0 and result["error_vs_simulator"] == abs(row["error"])
    assert json.loads((tmp_path / "run" / "dry-run.json").read_text()) == result
    until_gone(lambda: of_run(tmp_path))


@pytest.mark.parametrize("started", [TWO_AT_ONCE], indirect=True)
@pytest.mark.parametrize("moment", ["logs/bus.log", "logs/scheduler.log", "logs/trainer-0.log", "summary.json"])
def test_ctrl_c_at_any_moment_stops_everything_in_order(moment, started, tmp_path):
    """Dry run: exit code 130, no traceback, no process left, while two variants start, wait for each other and run; the last is told thrice, and
    while the simulator is asked."""
    while not any((tmp_path / "run" / name / moment).exists() for name in ("small", "other")):
        assert started.poll() is None
        time.sleep(POLL_S)
    for _ in range(3 if moment == "summary.json" else 1):
        started.send_signal(signal.SIGINT)
    _, said = started.communicate(timeout=300)
    assert started.returncode == 130 and "Traceback" not in said
    until_gone(lambda: of_run(tmp_path))

"""What vLLM's processes leave, and that only dead owners' is removed by others (A6)."""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from gyre.config.sections import VllmConfig
from services.rollout.engine.vllm.belongings import Belongings, remove_orphaned
from services.rollout.engine.vllm.process import PLUGIN, VllmProcess
from tests.support import ROOT

OWNER = """
import time
from services.rollout.engine.vllm.belongings import SHARED, Belongings
mine = Belongings()
(mine.folder / "socket").touch()
(SHARED / f"{mine.folder.name}-1").write_bytes(b"x" * 4096)
print(mine.folder, flush=True)
time.sleep(3600)
"""
WORKER = """
import multiprocessing, sys, time
from multiprocessing import shared_memory
from types import SimpleNamespace
factory = SimpleNamespace(_registry={"gyre": None})
sys.modules["vllm.distributed.weight_transfer"] = SimpleNamespace(WeightTransferEngineFactory=factory)
from gyre_vllm.plugin import register
register()
memory = shared_memory.SharedMemory(create=True, size=16)
lock = multiprocessing.get_context("spawn").Lock()
print("made", flush=True)
time.sleep(3600)
"""
"""What vLLM's processes do, without vLLM."""


@pytest.fixture(autouse=True)
def temporary(monkeypatch, tmp_path):
    """All folders of this test lie in its own."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return tmp_path


@pytest.fixture
def owner():
    """A process with a folder and shared memory, and that folder."""
    with subprocess.Popen([sys.executable, "-c", OWNER], cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        yield process, Path(process.stdout.readline().strip())
        process.kill()
    remove_orphaned()


def test_a_restart_removes_what_a_killed_cell_has_left(owner, tmp_path):
    """A6: after `kill -9` both are still there, and the next cell's process object takes them away when it is made."""
    process, folder = owner
    process.kill()
    process.wait()
    shared = Path("/dev/shm") / f"{folder.name}-1"
    assert shared.exists() and folder.exists()
    made = VllmProcess(tmp_path, 4, 64, VllmConfig(), "cpu", 1, tmp_path / "vllm.log")
    assert not shared.exists() and not folder.exists()
    assert Path(made.socket).parent.exists()
    made.forget()


def test_nothing_is_taken_from_a_cell_that_lives(owner):
    """A6: another process's, and one's own."""
    _, folder = owner
    mine = Belongings()
    assert remove_orphaned() == []
    assert (folder / "socket").exists() and (Path("/dev/shm") / f"{folder.name}-1").exists() and mine.folder.exists()
    mine.remove()


def test_what_others_can_write_into_is_left_alone(temporary):
    """A6: a folder that only bears the name; and a link to something else."""
    (open_to_all := temporary / "gyre-vllm-shared").mkdir(mode=0o755)
    (victim := temporary / "victim").mkdir(mode=0o700)
    (temporary / "gyre-vllm-link").symlink_to(victim)
    assert remove_orphaned() == []
    assert open_to_all.exists() and victim.exists()


def test_shared_memory_and_semaphores_of_vllms_processes_bear_the_owners_name():
    """A6: as the plugin has it in each of them; killed with their group they leave both, and the owner finds and removes them."""
    mine = Belongings()
    variables = os.environ | mine.variables | {"PYTHONPATH": str(PLUGIN)}
    with subprocess.Popen(
        [sys.executable, "-c", WORKER], env=variables, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stdout.readline() == "made\n"
        os.killpg(process.pid, signal.SIGKILL)
    assert len(mine.segments()) == 2
    mine.remove()
    assert mine.segments() == []

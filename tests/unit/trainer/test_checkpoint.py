"""Checkpoints are whole or not there."""

import os
import signal
import subprocess
import sys

import pytest
import torch

from services.trainer import checkpoint
from services.trainer.publish import prune_published, publish_file

TENSORS = {"w": torch.arange(6.0).reshape(2, 3)}


def test_what_was_written_is_read_again(tmp_path):
    """A2, D10."""
    made = checkpoint.write(tmp_path, 7, TENSORS, {"state": {0: {"m": torch.ones(2)}}}, lambda: {"sample_ids": ["x"]})
    found = checkpoint.newest(tmp_path)
    assert found == made and found.version == 7 and found.state.sample_ids == ["x"]
    assert torch.equal(found.tensors()["w"], TENSORS["w"])
    assert torch.equal(found.optimizer()["state"][0]["m"], torch.ones(2))
    assert (tmp_path / "latest").read_text() == "v000007"


@pytest.mark.parametrize("damage", ["weights.safetensors", "optimizer.pt", "state.msgpack"])
def test_a_damaged_or_half_checkpoint_gives_way_to_the_one_before(tmp_path, damage):
    """D10. A file cut short, then one that is missing."""
    checkpoint.write(tmp_path, 1, TENSORS, {})
    newer = checkpoint.write(tmp_path, 2, TENSORS, {})
    (newer.folder / damage).write_bytes((newer.folder / damage).read_bytes()[:-1])
    assert checkpoint.newest(tmp_path).version == 1
    (newer.folder / damage).unlink()
    assert checkpoint.newest(tmp_path).version == 1


@pytest.mark.parametrize("when", ["before the state", "before the rename", "before the pointer"])
def test_a_kill_while_writing_leaves_the_old_one_or_the_whole_new_one(tmp_path, when):
    """A2. A real process that kills itself with -9 inside write()."""
    checkpoint.write(tmp_path, 1, TENSORS, {})
    point = {
        "before the state": "fields",
        "before the rename": "os.rename",
        "before the pointer": "checkpoint._point_to",
    }
    program = f"""
import os, signal, torch
from services.trainer import checkpoint
def die(*_): os.kill(os.getpid(), signal.SIGKILL)
point = {point[when]!r}
if point == "os.rename": os.rename = die
if point == "checkpoint._point_to": checkpoint._point_to = die
from pathlib import Path
checkpoint.write(Path({str(tmp_path)!r}), 2, {{"w": torch.ones(2)}}, {{}}, die if point == "fields" else dict)
"""
    root = os.path.dirname(os.path.abspath(checkpoint.__file__)).removesuffix(os.path.join("services", "trainer"))
    assert subprocess.run([sys.executable, "-c", program], cwd=root).returncode == -signal.SIGKILL
    # After the rename it is whole, whatever the pointer says.
    assert checkpoint.newest(tmp_path).version == (2 if when == "before the pointer" else 1)
    checkpoint.prune(tmp_path, 3)
    assert not list(tmp_path.glob(".new-*"))


def test_a_folder_is_on_disk_before_its_name_is(tmp_path, monkeypatch):
    """A2. After a power cut the rename may be there, and entries of the folder not, unless they were flushed first."""
    done = []
    sync, rename = checkpoint.sync_folder, os.rename
    monkeypatch.setattr(checkpoint, "sync_folder", lambda folder: (done.append(folder.name), sync(folder)))
    monkeypatch.setattr(os, "rename", lambda one, other: (done.append("rename"), rename(one, other)))
    checkpoint.write(tmp_path, 1, TENSORS, {})
    assert done[0].startswith(".new-") and done[1:3] == ["rename", tmp_path.name]


def test_only_the_newest_are_kept(tmp_path):
    """D10. trainer.checkpoints_kept."""
    for version in range(5):
        checkpoint.write(tmp_path, version, TENSORS, {})
    checkpoint.prune(tmp_path, 2)
    assert sorted(path.name for path in tmp_path.glob("v*")) == ["v000003", "v000004"]


def test_a_published_file_outlives_its_checkpoint_and_is_made_once(tmp_path):
    """A4. The same bytes by a hard link; publishing again, after a restart, gives the same fact."""
    made = checkpoint.write(tmp_path / "checkpoints", 3, TENSORS, {})
    fact = publish_file(made, tmp_path / "weights", 1.0)
    assert os.stat(fact.path).st_ino == os.stat(made.weights).st_ino
    assert publish_file(made, tmp_path / "weights", 1.0) == fact
    checkpoint.write(tmp_path / "checkpoints", 4, TENSORS, {})
    checkpoint.prune(tmp_path / "checkpoints", 1)
    assert checkpoint.digest_of(tmp_path / "weights" / "v000003.safetensors") == fact.checksum
    assert fact.version == 3 and fact.bytes == os.stat(fact.path).st_size


def test_published_weights_do_not_fill_the_disk(tmp_path):
    """A4. A run of five publishes keeps the newest four; three at least, whatever is configured: somebody may be about to load them."""
    for kept, left in ((4, [2, 3, 4, 5]), (1, [3, 4, 5])):
        for version in range(1, 6):
            (tmp_path / f"v{version:06d}.safetensors").touch()
        prune_published(tmp_path, kept)
        assert sorted(path.name for path in tmp_path.iterdir()) == [f"v{version:06d}.safetensors" for version in left]

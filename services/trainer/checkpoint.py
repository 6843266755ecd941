"""Checkpoints: written whole or not at all, newest whole one found again (A2, D10).

    checkpoints/v000012/   weights.safetensors   optimizer.pt   state.msgpack      twelve steps done
    checkpoints/latest     name of the newest, written last

A folder is made under a temporary name, every file and the folder itself are flushed to disk, and the rename makes it a checkpoint; the pointer
follows. A folder that lacks something, or whose files do not have the digests its state names, is no checkpoint, and the one before it is taken;
whether the run can go on from that is the core's to say (`core_cell.py`).
"""

import hashlib
import logging
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import safetensors.torch
import torch

from gyre.errors import InvalidInput

log = logging.getLogger(__name__)

POINTER = "latest"
WEIGHTS = "weights.safetensors"
OPTIMIZER = "optimizer.pt"
STATE = "state.msgpack"


class State(msgspec.Struct, frozen=True, kw_only=True):
    """Everything of a checkpoint but its tensors."""

    version: int
    """Optimizer steps done; also the position of the learning-rate schedule, and the step to be opened next."""
    digests: dict[str, str]
    """File → sha256."""
    rng: bytes
    """torch's CPU generator."""
    sample_ids: list[str] = []
    """Samples trained by the step that made this version."""
    micro_ids: list[str] = []
    """Its micro-steps: a redelivery of one of them is acknowledged and discarded."""
    updated: bytes = b""
    """The encoded StepUpdated of that step, to be said again when a crash came between checkpoint and fact."""


@dataclass(frozen=True)
class Checkpoint:
    """One on disk."""

    folder: Path
    state: State

    @property
    def version(self) -> int:
        return self.state.version

    @property
    def weights(self) -> Path:
        """Also the snapshot that joining satellites load (A8)."""
        return self.folder / WEIGHTS

    @property
    def weights_digest(self) -> str:
        return self.state.digests[WEIGHTS]

    def tensors(self) -> dict[str, torch.Tensor]:
        return safetensors.torch.load_file(self.weights)

    def optimizer(self) -> dict[str, Any]:
        return torch.load(self.folder / OPTIMIZER, weights_only=True)


def name_of(version: int) -> str:
    return f"v{version:06d}"


def write(
    root: Path, version: int, tensors: Mapping[str, torch.Tensor], optimizer: Mapping[str, Any],
    fields: Callable[[], Mapping[str, Any]] = dict,
) -> Checkpoint:  # fmt: skip
    """Make checkpoint `version`. `fields` gives the rest of State and is called when the tensors are on disk."""
    root.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=".new-", dir=root))
    try:
        safetensors.torch.save_file(dict(tensors), temporary / WEIGHTS)
        torch.save(dict(optimizer), temporary / OPTIMIZER)
        digests = {name: sync_and_digest(temporary / name) for name in (WEIGHTS, OPTIMIZER)}
        rng = torch.get_rng_state().numpy().tobytes()
        state = State(version=version, digests=digests, rng=rng, **fields())
        (temporary / STATE).write_bytes(msgspec.msgpack.encode(state))
        sync_and_digest(temporary / STATE)
        sync_folder(temporary)
        final = root / name_of(version)
        if final.exists():  # damaged, and nothing on record says that it was ever whole
            shutil.rmtree(final)
        os.chmod(temporary, 0o755)
        os.rename(temporary, final)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    sync_folder(root)
    _point_to(root, final.name)
    return Checkpoint(final, state)


def newest(root: Path) -> Checkpoint | None:
    """The newest whole checkpoint: what the pointer names or a later one that a crash left without pointer, else the one before."""
    for folder in folders(root):
        try:
            return read(folder)
        except InvalidInput as error:
            log.error("%s", error)
    return None


def folders(root: Path) -> list[Path]:
    """Of checkpoints, whole or not, the newest first."""
    return sorted(root.glob("v*"), reverse=True)


def read(folder: Path) -> Checkpoint:
    """Raises InvalidInput when it is not whole."""
    try:
        state = msgspec.msgpack.decode((folder / STATE).read_bytes(), type=State)
        for name, digest in state.digests.items():
            if digest_of(folder / name) != digest:
                raise InvalidInput(f"checkpoint {folder}: {name} is damaged")
    except (OSError, msgspec.MsgspecError) as error:
        raise InvalidInput(f"checkpoint {folder} is not whole: {error}") from error
    return Checkpoint(folder, state)


def prune(root: Path, kept: int) -> None:
    """Keep the newest `kept`, and clear away what a crash left half written."""
    for folder in folders(root)[kept:]:
        shutil.rmtree(folder, ignore_errors=True)
    for folder in root.glob(".new-*"):
        shutil.rmtree(folder, ignore_errors=True)


def sync_and_digest(path: Path) -> str:
    """Flush a file to disk; returns its sha256."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
        return hashlib.file_digest(file, "sha256").hexdigest()


def digest_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sync_folder(folder: Path) -> None:
    """Make a rename durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _point_to(root: Path, name: str) -> None:
    temporary = root / f"{POINTER}.new"
    temporary.write_text(name)
    sync_and_digest(temporary)
    os.replace(temporary, root / POINTER)
    sync_folder(root)

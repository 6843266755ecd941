"""How the bytes of a published file come to the worker. All ways end in the same check, before any live weight is touched."""

import hashlib
from datetime import timedelta
from pathlib import Path

import safetensors.torch
import torch
import torch.distributed as dist

CHUNK_BYTES = 64 * 1024 * 1024
INTERFACE = "lo"
"""Nothing outside this machine can reach the group."""


def open_group(store: str, rank: int, timeout_s: float) -> dist.ProcessGroupGloo:
    """A gloo group of two that meet in a file: the cell is rank 0, the worker rank 1. (TCPStore would listen on all interfaces.)"""
    options = dist.ProcessGroupGloo._Options()
    options._devices = [dist.ProcessGroupGloo.create_device(interface=INTERFACE)]
    options._timeout = timedelta(seconds=timeout_s)
    meeting = dist.FileStore(store, 2)
    meeting.set_timeout(timedelta(seconds=timeout_s))
    return dist.ProcessGroupGloo(meeting, rank, 2, options)


def broadcast(group: dist.ProcessGroupGloo, flat: torch.Tensor) -> None:
    """`flat` uint8 [bytes] from rank 0 into the other's, in place."""
    options = dist.BroadcastOptions()
    options.rootRank = 0
    for start in range(0, len(flat), CHUNK_BYTES):
        group.broadcast([flat[start : start + CHUNK_BYTES]], options).wait()


def read_files(files: list[dict]) -> dict[str, torch.Tensor]:
    """`{path, sha256}` each, of storage that worker and trainer share. Raises ValueError where a file is not what was published."""
    weights: dict[str, torch.Tensor] = {}
    for file in files:
        weights.update(parse(Path(file["path"]).read_bytes(), file["sha256"], file["path"]))
    return weights


def receive_files(files: list[dict], store: str, timeout_s: float) -> dict[str, torch.Tensor]:
    """`{path, sha256, bytes}` each, broadcast by the cell in this order; the paths are only names."""
    group = open_group(store, 1, timeout_s)
    weights: dict[str, torch.Tensor] = {}
    for file in files:
        flat = torch.empty(file["bytes"], dtype=torch.uint8)
        broadcast(group, flat)
        weights.update(parse(flat.numpy().tobytes(), file["sha256"], file["path"]))
    return weights


def parse(data: bytes, sha256: str, name: str) -> dict[str, torch.Tensor]:
    if (found := hashlib.sha256(data).hexdigest()) != sha256:
        raise ValueError(f"{name}: sha256 {found}, announced {sha256}")
    return safetensors.torch.load(data)

"""The cell's side of a transfer by gloo: the bytes of the published files, one after the other."""

import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from services.rollout.engine.vllm.plugin.gyre_vllm.receiving import broadcast, open_group
from services.rollout.engine.vllm.published import WeightFile


def meeting_file() -> str:
    """A name for the file in which cell and worker meet, in a folder of its own that is this user's alone."""
    return str(Path(tempfile.mkdtemp(prefix="gyre-meet-")) / "store")


def send(files: Sequence[WeightFile], store: str, timeout_s: float) -> None:
    """Blocks until all is sent. Raises RuntimeError when the worker does not come, or leaves."""
    group = open_group(store, 0, timeout_s)
    for file in files:
        broadcast(group, torch.from_numpy(np.fromfile(file.path, dtype=np.uint8)))

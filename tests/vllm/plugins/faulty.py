"""A test tool inside vLLM's worker: weight updates that fail as the file named by GYRE_TEST_FAULT says, once."""

import os
import time
from pathlib import Path

from gyre_vllm import transfer
from gyre_vllm.extension import Extension

__all__ = ["Extension"]

FAULT = Path(os.environ["GYRE_TEST_FAULT"])


class FaultyTransfer(transfer.Transfer):
    def load(self, weights):
        if not FAULT.exists():
            return super().load(weights)
        kind = FAULT.read_text()
        FAULT.unlink()
        if kind == "half":
            super().load(dict(list(weights.items())[: len(weights) // 2]))
            raise RuntimeError("a fault in the middle of an update")
        if kind == "hang":
            time.sleep(3600)
        if kind == "lossy":  # reports success, and has lost a layer's update
            super().load({name: tensor for name, tensor in weights.items() if "down_proj" not in name})


transfer.Transfer = FaultyTransfer
